"""`lockstep launch` and `lockstep jobs`: what is launched can be followed and ended, and no secret is written anywhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Tiny, command, steps
from slurm_cluster import wait_until

SECRET = "a-secret-that-nobody-may-write-down"
IMAGE = ("--image", "made/up:1")
PLATFORM = """#!{python} -I
import json, os, sys
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
text = "" if sys.stdin.isatty() else sys.stdin.read()
with open({calls!r}, "a") as file:
    print(json.dumps([words, text, os.environ.get("LOCKSTEP_SECRET")]), file=file)
for part, answer in json.load(open({answers!r})).items():
    if part in " ".join(words):
        print(answer)
        break
"""
"""Takes the place of kubectl, sky or gcloud, which have no cluster here: it notes how it is called."""


class Console:
    """A user with a record of jobs of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.environment = os.environ | {"LOCKSTEP_STATE": str(self.state), "LOCKSTEP_SECRET": SECRET, "COLUMNS": "160"}

    def run(self, *words: object, code: int = 0) -> str:
        """Returns what the real command prints, on stderr if it must fail."""
        result = subprocess.run(
            command(*words),
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == code, result.stderr
        assert "Traceback" not in result.stderr
        return result.stderr if code else result.stdout

    def status(self) -> str:
        return str(json.loads(self.run("jobs", "status", "--json"))["state"])

    def install_platform(self, name: str, answers: dict[str, str]) -> None:
        """Puts a stand-in on PATH, which answers by what is in its words."""
        programs = self.folder / "programs"
        programs.mkdir()
        (self.folder / "answers.json").write_text(json.dumps(answers))
        text = PLATFORM.format(
            python=sys.executable, calls=str(self.folder / "calls"), answers=str(self.folder / "answers.json")
        )
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
        self.environment["PATH"] = f"{programs}:{self.environment['PATH']}"

    def answer(self, answers: dict[str, str]) -> None:
        (self.folder / "answers.json").write_text(json.dumps(answers))

    def calls(self) -> list[Any]:
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return Console(tmp_path)


def test_a_local_job_is_launched_and_followed_to_its_end(console: Console, tiny: Tiny, tmp_path: Path) -> None:
    words = ("launch", tiny.config, "--on", "local", "--workers-per-node", 1, "--run", "run", "--name", "first")
    assert "lockstep jobs logs first" in console.run(*words)
    wait_until(lambda: console.status() != "running", "the job has ended")
    assert console.status() == "finished"
    assert len(steps(tmp_path / "run")) == 8
    assert "finished at step 8" in console.run("jobs", "logs", "first")
    assert "first" in console.run("jobs", "list")
    assert "There is a job first" in console.run(*words, code=2)
    assert "has ended already" in console.run("jobs", "cancel", "first", code=2)
    written = [path.read_text(errors="replace") for path in console.state.rglob("*") if path.is_file()]
    assert written
    assert not any(SECRET in text for text in written)


def test_a_job_that_is_cancelled_saves_first(console: Console, tiny: Tiny, tmp_path: Path) -> None:
    words = ("--workers-per-node", 1, "--run", "run", "--name", "second")
    console.run("launch", tiny.config, "train.steps=100000", "--on", "local", *words)
    wait_until(lambda: (tmp_path / "run" / "journal").exists() and len(steps(tmp_path / "run")) > 3, "it trains")
    console.run("jobs", "cancel", "second")
    wait_until(lambda: console.status() == "cancelled", "it has ended")
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


def test_a_job_that_was_killed_has_failed(console: Console, tiny: Tiny, tmp_path: Path) -> None:
    words = ("--workers-per-node", 1, "--run", "run", "--name", "third", "--json")
    launched = json.loads(console.run("launch", tiny.config, "train.steps=100000", "--on", "local", *words))
    wait_until(lambda: (tmp_path / "run" / "journal").exists() and len(steps(tmp_path / "run")) > 3, "it trains")
    os.kill(int(launched["id"]), 9)
    wait_until(lambda: console.status() == "failed", "its journal has no end")


@pytest.mark.parametrize(
    ("kind", "program", "words"),
    [
        ("kubernetes", "kubectl", ("--with", "claim=runs")),
        ("sky", "sky", ("--with", "bucket=s3://b")),
        ("vertex", "gcloud", ("--with", "bucket=b", "--with", "region=r", "--run", "gs://b/run")),
    ],
)
def test_a_platform_gets_the_printed_text_and_never_a_secret_in_a_command_line(
    console: Console, tiny: Tiny, kind: str, program: str, words: tuple[str, ...]
) -> None:
    """The platforms have no cluster here: that they take these words is not tried."""
    running = {
        "get trainjob": json.dumps({"status": {"jobsStatus": [{"active": 2}]}}),
        "jobs queue": json.dumps([{"job_name": "first", "status": "RUNNING"}]),
        "describe": "JOB_STATE_RUNNING",
        "create": "projects/1/customJobs/2",
    }
    console.install_platform(program, running)
    launch = ("launch", tiny.config, "--on", kind, "--nodes", 2, *IMAGE, *words, "--name", "first")
    console.run(*launch)
    assert console.status() == "running"
    secrets = {secret for called, text, given in console.calls() for secret in (given, text.strip()) if secret}
    made = {secret for secret in secrets if len(secret) == 64}
    assert len(made) == 1, "one, which went through a pipe or the environment"
    assert SECRET not in secrets
    written = [path.read_text() for path in console.state.rglob("*.json")]
    for secret in (*made, SECRET):
        assert not any(secret in " ".join(called) for called, *_ in console.calls())
        assert not any(secret in text for text in written)
    console.run("jobs", "cancel")
    console.answer({"queue": "[]"} if kind == "sky" else {"describe": "JOB_STATE_CANCELLED"})
    if kind == "kubernetes":
        console.answer({"get": json.dumps({"status": {"conditions": [{"type": "Failed", "status": "True"}]}})})
        assert console.status() == "failed"
    else:
        assert console.status() == "cancelled"


@pytest.mark.parametrize(("kind", "program"), [("slurm", "sbatch"), ("kubernetes", "kubectl"), ("sky", "sky")])
def test_without_the_platforms_program_the_text_can_be_printed(
    console: Console, tiny: Tiny, kind: str, program: str
) -> None:
    words = ["launch", tiny.config, "--on", kind, "--name", "first"]
    words += {"kubernetes": [*IMAGE, "--with", "claim=c"], "sky": ["--with", "bucket=s3://b"]}.get(kind, [])
    console.environment["PATH"] = str(console.folder)
    said = console.run(*words, code=2)
    assert f"{program} is not installed" in said
    assert "--print" in said
    assert "lockstep train" in console.run(*words, "--print").replace("-m lockstep -- train", "lockstep train")


def test_a_wrong_launch_is_refused_in_a_sentence(console: Console, tiny: Tiny) -> None:
    def refused(*words: object) -> str:
        return console.run("launch", tiny.config, *words, code=2)

    assert "no kind of cluster 'moon'" in refused("--on", "moon")
    assert "--on mpi needs machines" in refused("--on", "mpi", "--print")
    assert "--hosts is not for --on slurm" in refused("--on", "slurm", "--hosts", "a,b")
    assert "--plain is not for --on sky" in refused("--on", "sky", "--plain")
    assert "--print and --pretend exclude" in refused("--print", "--pretend")
    assert "--servers is not for strategy.name=auto" in refused("--servers", 1)
    assert "cannot be the name of a job" in refused("--name", "First Job")
    assert "train.stepz" in refused("train.stepz=1")
    assert "No job was launched" in console.run("jobs", "status", code=2)
