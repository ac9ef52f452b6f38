"""The platforms' own parsers read the printed texts, offline. Each is large and has an environment of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Tiny, lockstep

pytestmark = pytest.mark.slow
KUBERNETES = ("--nodes", 2, "--image", "made/up:1", "--with", "claim=runs", "--with", "cpu=4", "--max-hours", 2)
SKY = ("--nodes", 2, "--with", "bucket=s3://made-up", "--with", "accelerators=A100:4", "--with", "cpus=8+")
VERTEX = ("--nodes", 3, "--image", "made/up:1", "--with", "bucket=b", "--run", "gs://b/run", "--max-hours", 2)
READ_TASK = """
import sys, sky, yaml
text = yaml.safe_load(open(sys.argv[1]))
task = sky.Task.from_yaml_config(text, secrets_overrides=[("LOCKSTEP_SECRET", "of the environment")])
(resources,) = task.resources
print(task.name, task.num_nodes, resources.use_spot, resources.accelerators, list(task.storage_mounts), list(task.secrets))
"""
READ_CUSTOM_JOB = """
import sys, yaml
from google.cloud.aiplatform_v1.types import CustomJobSpec
from google.protobuf import json_format
message = CustomJobSpec.pb(CustomJobSpec())
json_format.ParseDict(yaml.safe_load(open(sys.argv[1])), message)
pools = message.worker_pool_specs
print([pool.replica_count for pool in pools], message.scheduling.timeout.seconds, pools[2].machine_spec.machine_type)
"""

Environment = Callable[..., Path]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Makes an environment with a package, and returns its programs."""

    def make(*packages: str, alone: tuple[str, ...] = ()) -> Path:
        folder = tmp_path_factory.mktemp("parser") / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        for words in (packages, ("--no-deps", *alone) if alone else ()):
            result = subprocess.run([*install, *words], capture_output=True, text=True, check=False) if words else None
            if result is not None and result.returncode:
                pytest.skip(f"{words[-1]} cannot be installed here: {result.stderr.strip().splitlines()[-1]}")
        return folder / "bin"

    return make


def print_job(folder: Path, tiny: Tiny, *words: object) -> Path:
    path = folder / "job.yaml"
    path.write_text(lockstep("launch", tiny.config, *words, "--name", "first", "--print").stdout)
    return path


def read_with(program: Path, script: str, path: Path, home: Path) -> str:
    words = [str(program / "python"), "-c", script, str(path)]
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip().splitlines()[-1]


def test_kubernetes_validates_the_indexed_job(environment: Environment, tiny: Tiny, tmp_path: Path) -> None:
    programs = environment("kubernetes-validate==1.37.0")
    path = print_job(tmp_path, tiny, "--on", "kubernetes", "--plain", *KUBERNETES)
    words = [str(programs / "kubernetes-validate"), "--strict", str(path)]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    said = result.stdout + result.stderr
    assert result.returncode == 0, said
    assert said.count("passed") == 2
    path.write_text(path.read_text().replace("completionMode", "completionMood"))
    assert subprocess.run(words, capture_output=True, check=False).returncode != 0, "it would see a misspelt key"


def test_skypilot_reads_the_task(environment: Environment, tiny: Tiny, tmp_path: Path) -> None:
    programs = environment("skypilot==0.14.1")
    path = print_job(tmp_path, tiny, "--on", "sky", *SKY)
    read = read_with(programs, READ_TASK, path, tmp_path)
    assert read == "first 2 True {'A100': 4} ['/runs'] ['LOCKSTEP_SECRET']"


def test_vertex_reads_the_custom_job(environment: Environment, tiny: Tiny, tmp_path: Path) -> None:
    needed = ("proto-plus", "google-api-core", "google-cloud-core", "grpc-google-iam-v1", "grpcio", "PyYAML")
    programs = environment(*needed, alone=("google-cloud-aiplatform==2.7.0",))
    settings = ("strategy.name=server", "--servers", 1, "--with", "server-machine-type=n1-highmem-2")
    path = print_job(tmp_path, tiny, *settings, "--on", "vertex", *VERTEX)
    assert read_with(programs, READ_CUSTOM_JOB, path, tmp_path) == "[1, 2, 1] 7800 n1-highmem-2"
