"""GPUs through NVIDIA's own Python binding. A small library stands in for the driver: no machine here has one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = (
    "import json\nfrom lockstep.watch.gpus import Gpus\ngpus = Gpus({})\nprint(json.dumps([gpus(1.0), gpus(1.0)]))"
)


def read_samples(uuids: list[str] | None = None, **environment: str) -> list[list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(uuids)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler to make a driver with")
    folder = tmp_path_factory.mktemp("driver")
    source, library = Path(__file__).with_name("nvml.c"), folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return folder


def test_every_device_is_sampled_and_unknown_figures_are_null(driver: Path) -> None:
    first, second = read_samples(LD_LIBRARY_PATH=str(driver))
    known = {"utilisation": 0.75, "memory_used": 20_000_000_000, "memory_total": 80_000_000_000}
    new = known | {"index": 0, "name": "New One", "watts": 312.5, "sm_activity": pytest.approx(0.41)}
    old = known | {"index": 1, "name": "Old One", "watts": None, "sm_activity": None}
    assert first == second == [new, old]


def test_only_the_gpus_of_the_run_are_sampled_also_parts_of_one(driver: Path) -> None:
    samples, _ = read_samples(["old", "unknown", "GPU-new"], LD_LIBRARY_PATH=str(driver))
    assert [(gpu["index"], gpu["name"]) for gpu in samples] == [(0, "Old One"), (1, "New One")]
    assert read_samples([], LD_LIBRARY_PATH=str(driver)) == [[], []]


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="there is a driver here")
def test_without_a_driver_there_are_no_gpus(tmp_path: Path) -> None:
    assert read_samples() == [[], []]
