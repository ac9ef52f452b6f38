"""Promises 3 and 4 on an object store: the real command and a local S3 server, with kills during an upload."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import Tiny, command, lockstep, steps, weights
from lockstep.process import die_with_parent
from lockstep.remote.lease import NAME as LEASE
from lockstep.remote.place import cache_folder
from lockstep.remote.store import Store
from lockstep.run.journal import read

STEPS = 8
SETTINGS = (f"train.steps={STEPS}", "train.checkpoint_every=2", "train.evaluate_every=4", "train.keep_last=1")


@contextmanager
def run_server() -> Iterator[str]:
    """Runs an S3 server in a separate process; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(program, stdout=quiet, stderr=quiet, preexec_fn=die_with_parent)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The address of a bucket; the environment has the endpoint and the credentials, as a user's would."""
    import boto3

    with run_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "somebody")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret-word")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        boto3.client("s3").create_bucket(Bucket="lockstep-tests")
        yield "s3://lockstep-tests"


def list_checkpoints(url: str) -> dict[str, bool]:
    """Returns the checkpoints of which the store has any file, and whether each is committed."""
    names = list(Store(url).list("checkpoints"))
    return {name.split("/")[1]: f"checkpoints/{name.split('/')[1]}/manifest.json" in names for name in names}


def find_folder(cache: Path, url: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_CACHE", str(cache))
        return cache_folder("runs", url)


@pytest.mark.parametrize(
    ("workers", "point", "committed"),
    [
        pytest.param(1, "upload:step=6", 4, marks=pytest.mark.slow),  # while files are sent
        (2, "commit:step=6", 4),  # when only the manifest is missing
    ],
)
def test_killed_while_uploading_and_started_on_another_machine_ends_in_the_same_bits(
    bucket: str, tiny: Tiny, tmp_path: Path, workers: int, point: str, committed: int
) -> None:
    url = f"{bucket}/killed-{workers}"
    train = ("train", tiny.config, *SETTINGS, "--workers", workers, "--run")
    one, two = tmp_path / "one", tmp_path / "two"
    dead = lockstep(*train, url, fault=f"kill:phase={point}:rank=0", code=None, LOCKSTEP_CACHE=str(one))
    assert dead.returncode != 0, f"nobody was killed at {point}"
    complete = {name for name, done in list_checkpoints(url).items() if done}
    assert max(complete) == f"step-{committed:08d}"
    assert len(list_checkpoints(url)) > len(complete), "the kill came before any file was sent"
    last = lockstep(*train, url, LOCKSTEP_CACHE=str(two))
    assert f"Continuing from step {committed}" in last.stderr
    assert f"finished at step {STEPS}" in last.stdout
    lockstep(*train, tmp_path / "straight")
    run = find_folder(two, url)
    assert weights(run, STEPS) == weights(tmp_path / "straight", STEPS)
    assert [line["batch"] for line in steps(run)] == [line["batch"] for line in steps(tmp_path / "straight")]
    best = {f"step-{line['step']:08d}" for line in read(run / "journal").of("evaluation") if line["best"]}
    assert set(list_checkpoints(url).values()) == {True}, "an incomplete checkpoint was left"
    assert set(list_checkpoints(url)) <= best | {f"step-{STEPS:08d}"}
    store = Store(url)
    for rank in range(workers):
        name = f"journal/worker-{rank:04d}.jsonl"
        assert store.read(name) == (run / name).read_bytes(), "the journal on the store is not the last one"
    everything = b"".join(path.read_bytes() for path in run.rglob("*") if path.suffix in (".json", ".jsonl", ".yaml"))
    assert b"secret-word" not in everything


@pytest.mark.slow
def test_sigterm_waits_for_the_upload_and_releases_the_lease(bucket: str, tiny: Tiny, tmp_path: Path) -> None:
    url = f"{bucket}/stopped"
    train = command("train", tiny.config, "train.steps=100000", "train.checkpoint_every=1000", "--run", url)
    environment = os.environ | {"LOCKSTEP_CACHE": str(tmp_path / "one")}
    process = subprocess.Popen(train, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    run = find_folder(tmp_path / "one", url)
    while len(steps(run)) < 3:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143, errors
    reached = steps(run)[-1]["step"]
    assert list_checkpoints(url)[f"step-{reached:08d}"]
    assert b'"released": true' in (Store(url).read(LEASE) or b"")
    more = f"train.steps={reached + 2}"
    elsewhere = lockstep("train", more, "--run", url, LOCKSTEP_CACHE=str(tmp_path / "two"))  # the run has its config
    assert f"Continuing from step {reached}" in elsewhere.stderr


@pytest.fixture(scope="module")
def remote_everything(bucket: str, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A run whose text, corpus and run folder are all on the store, and the cache of the machine that trained it."""
    store, cache = Store(f"{bucket}/text"), tmp_path_factory.mktemp("trained-here")
    for path in tiny.folder.glob("*.??"):
        store.send(path, path.name)
    places = (f"data.folder={bucket}/text", f"data.corpus={bucket}/corpora/tiny")
    lockstep("train", tiny.config, *SETTINGS, *places, "--run", f"{bucket}/all", LOCKSTEP_CACHE=str(cache))
    return f"{bucket}/all", cache


def test_a_published_corpus_serves_another_machine_without_the_text(
    remote_everything: tuple[str, Path], bucket: str, tiny: Tiny, tmp_path: Path
) -> None:
    store = Store(bucket)
    for name in store.list("text"):
        store.remove([name])
    evaluated = lockstep(
        "evaluate", remote_everything[0], "--json", "--set", "validation", LOCKSTEP_CACHE=str(tmp_path)
    )
    here = find_folder(remote_everything[1], remote_everything[0])
    best = next(line for line in reversed(read(here / "journal").of("evaluation")) if line["best"])
    assert json.loads(evaluated.stdout)["loss"] == pytest.approx(best["scores"]["loss"], rel=1e-5)
    assert not list(tmp_path.rglob("train.en")), "text was fetched although the corpus is on the store"
    assert not list(tmp_path.rglob("state")), "more than the model was fetched"
    assert f"corpus: {bucket}/corpora/tiny" in (here / "config.yaml").read_text()


@pytest.mark.slow
def test_images_are_read_from_a_bucket_and_copied_once(bucket: str, tiny_images: Tiny, tmp_path: Path) -> None:
    """Field report 4's cloud job: a bucket for the data and one for the run, and the same config as at home."""
    store, cache = Store(f"{bucket}/images"), str(tmp_path / "cache")
    for path in (tiny_images.folder / "images").iterdir():
        store.send(path, path.name)
    train = ("train", tiny_images.config, f"data.images={store.url}", "--run", f"{bucket}/runs/images")
    lockstep(*train, "train.steps=3", LOCKSTEP_CACHE=cache)
    store.remove(["data_batch_1.bin"])
    lockstep(*train, "train.steps=5", LOCKSTEP_CACHE=cache)
    lockstep("train", tiny_images.config, "train.steps=5", "--run", tmp_path / "home")
    there = find_folder(tmp_path / "cache", f"{bucket}/runs/images")
    assert [line["loss"] for line in steps(there)] == [line["loss"] for line in steps(tmp_path / "home")]
    scores = [
        lockstep("evaluate", run, "--checkpoint", "last", "--json", LOCKSTEP_CACHE=cache).stdout
        for run in (train[-1], tmp_path / "home")
    ]
    assert json.loads(scores[0])["loss"] == json.loads(scores[1])["loss"]
    elsewhere = {"LOCKSTEP_CACHE": str(tmp_path / "elsewhere")}
    missing = lockstep(*train[:3], "--run", tmp_path / "other", code=1, **elsewhere)
    assert f"{store.url} is damaged: data_batch_1.bin is missing." in missing.stderr
    missing = lockstep(*train[:2], f"data.images={bucket}/none", "--run", tmp_path / "other", code=2, **elsewhere)
    assert f"There are no images at {bucket}/none." in missing.stderr


def test_translate_and_runs_read_from_the_store(
    remote_everything: tuple[str, Path], bucket: str, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("ba be bi\n")
    cache = str(tmp_path / "cache")
    for place in (remote_everything[0], f"{remote_everything[0]}/checkpoints/step-{STEPS:08d}"):
        assert lockstep("translate", place, "--input", text, LOCKSTEP_CACHE=cache).stdout.count("\n") == 1
    listed = lockstep("runs", bucket, LOCKSTEP_CACHE=cache).stdout
    assert remote_everything[0] in listed
    assert "finished" in listed


def test_the_report_of_a_remote_run_is_written_to_the_store(
    remote_everything: tuple[str, Path], tmp_path: Path
) -> None:
    url, store = remote_everything[0], Store(remote_everything[0])
    assert {"report.html", "report.md"} <= set(store.list())
    store.remove(["report.html", "report.md"])
    printed = lockstep("report", url, LOCKSTEP_CACHE=str(tmp_path)).stdout
    assert f"finished {STEPS} steps" in printed
    written = store.read("report.md") or b""
    assert f"# Run {url}".encode() in written
    assert b"model/model.safetensors" in written, "the checkpoints' manifests were not read"
    assert not list(tmp_path.rglob("*.safetensors")), "more than the manifests was fetched"
    missing = lockstep("report", f"{url}-nowhere", code=2, LOCKSTEP_CACHE=str(tmp_path))
    assert f"{url}-nowhere is not a run" in missing.stderr


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("s3://no-such-bucket/run", {}, "its bucket does not exist"),
        ("s3://lockstep-tests/run", {"AWS_ACCESS_KEY_ID": "", "AWS_EC2_METADATA_DISABLED": "true"}, "credentials"),
        ("s3://lockstep-tests/run", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}, "connect"),
    ],
)
def test_an_unusable_store_is_reported_without_a_traceback(
    bucket: str, tmp_path: Path, url: str, environment: dict[str, str], expected: str
) -> None:
    result = lockstep("runs", url, code=1, LOCKSTEP_CACHE=str(tmp_path), **environment)
    assert expected in result.stderr
    assert "Traceback" not in result.stderr
