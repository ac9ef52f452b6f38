"""Object stores, mirrored runs and leases, with fsspec's memory and local file systems."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import write_pairs
from lockstep.config import RunConfig, build, describe
from lockstep.data.corpus.prepare import prepare
from lockstep.data.corpus.remote_copies import fetch_corpus, publish_corpus
from lockstep.data.data_settings import DataSettings
from lockstep.errors import LockstepError
from lockstep.files import sha256
from lockstep.remote import lease, mirror
from lockstep.remote.lease import Lease
from lockstep.remote.mirror import Mirror
from lockstep.remote.place import cache_folder, is_remote, working_folder
from lockstep.remote.store import Store, StoreError
from lockstep.run.checkpoint import Checkpoint, parse, read_checkpoint, sign
from lockstep.run.directory import RunDirectory


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    from fsspec.implementations.memory import MemoryFileSystem

    yield "memory://bucket/place" if request.param == "memory" else f"file://{tmp_path}/bucket/place"
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def test_addresses_are_distinguished_from_paths() -> None:
    assert is_remote("s3://bucket/run")
    assert not is_remote(Path("runs/first"))
    assert not is_remote(None)
    assert working_folder("runs/first") == Path("runs/first")
    assert cache_folder("runs", "s3://a/b-c") != cache_folder("runs", "s3://a-b/c")
    assert cache_folder("runs", "s3://a/b/") == cache_folder("runs", "s3://a/b")
    with pytest.raises(LockstepError, match="two slashes"):
        is_remote(Path("s3://bucket/run"))
    with pytest.raises(LockstepError, match="password"):
        is_remote("sftp://me:secret@host/run")


def test_an_address_survives_the_config() -> None:
    data = {"grammar": {}, "corpus": "s3://bucket/corpus", "folder": "gs://bucket/text"}
    config = RunConfig.model_validate({"data": data, "batch": {"words": 100}})
    assert config.data.corpus == "s3://bucket/corpus"
    assert "folder: gs://bucket/text" in config.to_yaml()
    assert DataSettings.model_validate({"grammar": {}, "corpus": "here"}).corpus == Path("here")
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    with pytest.raises(LockstepError, match=r"data\.corpus=5 is wrong: it must be a path or an address"):
        build({"data": data | {"corpus": 5}, "batch": {"words": 100}}, "a test")
    assert describe("data.corpus")[0]["type"] == "path or address | null"


def test_an_object_in_a_local_folder_is_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, copyfile = Store(f"file://{tmp_path}/bucket"), shutil.copyfile
    for name in ("old", "new"):
        (tmp_path / name).write_text(name)
    store.send(tmp_path / "old", "a/manifest")

    def cut_off(source: str, target: str, **options: Any) -> None:
        copyfile(source, target)
        Path(target).write_text("ne")
        raise OSError("cut off")

    monkeypatch.setattr(shutil, "copyfile", cut_off)
    with pytest.raises(StoreError, match="cut off"):
        store.send(tmp_path / "new", "a/manifest")
    assert store.read("a/manifest") == b"old"
    assert list(store.list()) == ["a/manifest"]


def test_objects_can_be_written_listed_fetched_and_removed(url: str, tmp_path: Path) -> None:
    store = Store(url)
    assert store.read("a/b") is None
    assert store.list() == {}
    store.write("a/b", b"1")
    (tmp_path / "file").write_bytes(b"234")
    store.send(tmp_path / "file", "c/d/e")
    assert {name: entry.bytes for name, entry in store.list().items()} == {"a/b": 1, "c/d/e": 3}
    assert list(store.list("c")) == ["c/d/e"]
    store.fetch("c/d/e", tmp_path / "new" / "file")
    assert (tmp_path / "new" / "file").read_bytes() == b"234"
    store.remove(["a/b", "never/there"])
    assert store.read("a/b") is None
    with pytest.raises(StoreError, match="it does not exist"):
        store.fetch("a/b", tmp_path / "gone")


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec  # noqa: F401

    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"].__dict__["_registry"], "s3", raising=False)
    with pytest.raises(StoreError, match=r"pip install 'lockstep-train\[s3\]'"):
        Store("s3://bucket/run")
    with pytest.raises(StoreError, match="Protocol not known"):
        Store("nonsense://bucket/run")


def test_local_work_never_imports_fsspec() -> None:
    modules = "lockstep.cli.main, lockstep.data.corpus.prepare, lockstep.remote.mirror, lockstep.remote.fetch_run"
    program = f"import sys, {modules}\n"
    program += "from lockstep.cli.common import read_config\nprint('fsspec' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


# Corpora and text


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    write_pairs(folder, "train", 200, 1)
    write_pairs(folder, "valid", 5, 2)
    return folder


def settings(folder: str | Path, corpus: str | Path) -> DataSettings:
    names = {"train": ["train"], "validation": ["valid"], "vocabulary": {"size": 330}}
    return DataSettings.model_validate({"folder": str(folder), "corpus": str(corpus), **names})


def test_a_corpus_is_made_once_and_fetched_elsewhere(
    url: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = prepare(settings(text, url))
    assert Store(url).read("corpus.json") == (made.folder / "corpus.json").read_bytes()
    monkeypatch.setenv("LOCKSTEP_CACHE", str(tmp_path / "elsewhere"))
    fetched = prepare(settings(tmp_path / "no-text-here", url))
    assert fetched.digest == made.digest
    assert tmp_path / "elsewhere" in fetched.folder.parents
    assert len(fetched.set("train")) == len(made.set("train"))
    Store(url).remove(["train.source.ids"])
    assert fetch_corpus(url) == fetched.folder, "a copy with the same digest is not fetched again"
    with pytest.raises(LockstepError, match="was made from other settings or text"):
        prepare(settings(text, url).model_copy(update={"max_words": 7}))


def test_a_damaged_corpus_is_refused(url: str, text: Path, tmp_path: Path, cache: Path) -> None:
    corpus = prepare(settings(text, tmp_path / "corpus"))
    assert fetch_corpus(url) is None
    publish_corpus(corpus.folder, url)
    store = Store(url)
    store.write("train.source.ids", b"\0" * (corpus.folder / "train.source.ids").stat().st_size)
    with pytest.raises(LockstepError, match=r"train\.source\.ids does not match its digest"):
        fetch_corpus(url)
    store.remove(["train.source.ids"])
    with pytest.raises(LockstepError, match="is missing"):
        fetch_corpus(url)
    publish_corpus(corpus.folder, url)
    copy = fetch_corpus(url)
    assert copy is not None
    assert sha256(copy / "train.source.ids") == sha256(corpus.folder / "train.source.ids")


def test_a_remote_name_stands_for_the_only_file_that_fits(url: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("".join(f"a b {n},x y {n}\n" for n in range(60)))
    Store(url).send(tmp_path / "pairs.csv", "pairs.csv")
    settings = DataSettings.model_validate(
        {"folder": url, "train": ["pairs"], "corpus": tmp_path / "c", "vocabulary": {"size": 275}}
    )
    assert prepare(settings).facts["sets"]["train"]["read"] == 60


def test_remote_text_is_fetched_again_when_it_changes(url: str, text: Path, tmp_path: Path) -> None:
    store = Store(url)
    for path in text.iterdir():
        store.send(path, path.name)
    first = prepare(settings(url, tmp_path / "first"))
    assert len(first.set("validation")) == 5
    write_pairs(text, "valid", 7, 3)
    for path in text.glob("valid.*"):
        store.send(path, path.name)
    assert len(prepare(settings(url, tmp_path / "second")).set("validation")) == 7
    both = prepare(settings(url, f"{url}-corpus"))
    assert prepare(settings(url, f"{url}-corpus")).folder == both.folder
    store.remove(["valid.de"])
    with pytest.raises(LockstepError, match=r"place/valid\.de does not exist"):
        prepare(settings(url, tmp_path / "third"))


# Mirrored runs


def save(folder: Path, step: int, score: float | None = None) -> Checkpoint:
    """Writes a minimal checkpoint."""
    path = folder / "checkpoints" / f"step-{step:08d}"
    files: dict[str, dict[str, Any]] = {}
    for name in ("state/0.safetensors", "model/model.safetensors"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{name} of {folder} at {step}")
        files[name] = {"bytes": (path / name).stat().st_size, "sha256": sha256(path / name)}
    progress = {"step": step, "score": score, "best_step": None}
    (path / "manifest.json").write_text(json.dumps(sign(progress, {}, files)))
    saved = read_checkpoint(path)
    assert saved is not None
    return saved


def retain_all(all_saved: list[Checkpoint]) -> set[Path]:
    return {saved.path for saved in all_saved}


def open_mirror(url: str, folder: Path) -> Mirror:
    run = RunDirectory(folder)
    run.create()
    mirrored = Mirror(url, run)
    mirrored.open()
    return mirrored


def train(url: str, folder: Path, *new_steps: int) -> list[str]:
    """Runs a launch that saves these steps and ends; returns the checkpoints that it has at its start."""
    mirrored = open_mirror(url, folder)
    names = sorted(path.name for path in (folder / "checkpoints").glob("step-*"))
    (folder / "choices.json").write_text("{}")
    (folder / "config.yaml").write_text(f"trained: in {folder.name}")
    for step in new_steps:
        mirrored.upload(save(folder, step), retain_all)
    mirrored.close(failing=False)
    return names


@pytest.fixture(autouse=True)
def retry_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror, "PAUSES_SECONDS", (0.001, 0.001))


def test_a_new_machine_gets_the_run_and_its_newest_checkpoint(url: str, tmp_path: Path) -> None:
    assert train(url, tmp_path / "one", 3, 6) == []
    assert train(url, tmp_path / "two", 9) == ["step-00000006"]
    new, old = (read_checkpoint(tmp_path / name / "checkpoints/step-00000006") for name in ("two", "one"))
    assert new is not None
    assert old is not None
    assert new.damage() is None
    assert new.manifest == old.manifest
    assert (tmp_path / "two/config.yaml").read_text() == "trained: in two"


def test_a_score_that_comes_after_its_checkpoint_sends_the_manifest_alone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored, sent = open_mirror(url, tmp_path / "one"), list[str]()
    send = mirrored.store.send

    def record(path: Path, name: str) -> None:
        sent.append(name)
        send(path, name)

    mirrored.upload(save(tmp_path / "one", 3), retain_all)
    assert mirrored.wait()
    scored = save(tmp_path / "one", 3, score=0.5)
    monkeypatch.setattr(mirrored.store, "send", record)
    mirrored.upload(scored, retain_all)
    assert mirrored.wait()
    assert [name for name in sent if name.startswith("checkpoints/")] == ["checkpoints/step-00000003/manifest.json"]
    mirrored.upload(scored, retain_all)  # nothing is new
    mirrored.close(failing=False)
    assert [line.facts["bytes"] for line in mirrored.take_events()] == [scored.bytes, 0]
    on_store = parse(Path("step-00000003"), Store(url).read("checkpoints/step-00000003/manifest.json") or b"")
    assert on_store is not None
    assert on_store.score == 0.5


def test_waiting_for_an_upload_can_time_out(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored, begun, done = open_mirror(url, tmp_path / "one"), threading.Event(), threading.Event()
    send = mirrored._send

    def send_slowly(saved: Checkpoint, sent: set[str]) -> None:
        begun.set()
        done.wait(10.0)
        send(saved, sent)

    monkeypatch.setattr(mirrored, "_send", send_slowly)
    mirrored.upload(save(tmp_path / "one", 3), retain_all)
    assert begun.wait(10.0)
    assert not mirrored.wait(0.01)
    done.set()
    assert mirrored.wait(10.0)
    mirrored.close(failing=False)


def test_a_local_copy_that_is_newer_is_continued_and_uploaded(url: str, tmp_path: Path) -> None:
    train(url, tmp_path, 3)
    ahead = save(tmp_path, 6)  # the upload was cut off
    mirrored = open_mirror(url, tmp_path)
    assert ahead.damage() is None
    mirrored.upload(ahead, retain_all)
    mirrored.close(failing=False)
    assert "checkpoints/step-00000006/manifest.json" in Store(url).list()


def test_a_local_copy_that_another_machine_has_overtaken_is_moved_aside(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(url, tmp_path / "one", 3)
    train(url, tmp_path / "two", 6)
    save(tmp_path / "one", 9)  # further, but on a branch that the store does not know
    assert train(url, tmp_path / "one") == ["step-00000006"]
    assert "is not its latest state: moved to" in capsys.readouterr().err
    assert (tmp_path / "one.aside/checkpoints/step-00000009/manifest.json").exists()
    assert (tmp_path / "one/config.yaml").exists()


def test_checkpoints_that_are_damaged_or_have_no_manifest_are_skipped(url: str, tmp_path: Path) -> None:
    train(url, tmp_path / "one", 3, 6, 9)
    store = Store(url)
    store.remove(["checkpoints/step-00000009/manifest.json"])
    store.write("checkpoints/step-00000006/state/0.safetensors", b"other")
    mirrored = open_mirror(url, tmp_path / "two")
    assert [path.name for path in (tmp_path / "two/checkpoints").glob("step-*")] == ["step-00000003"]
    events = mirrored.take_events()
    assert [line.kind for line in events] == ["fault"]
    assert "step-00000006" in events[0].sentence
    mirrored.upload(save(tmp_path / "two", 12), retain_all)
    mirrored.close(failing=False)
    retained = {name.split("/")[1] for name in store.list("checkpoints")}
    assert retained == {"step-00000003", "step-00000012"}, "the next upload deletes incomplete and damaged ones"


def test_a_run_without_an_intact_checkpoint_is_not_overwritten(url: str, tmp_path: Path) -> None:
    train(url, tmp_path / "one", 3)
    Store(url).write("checkpoints/step-00000003/manifest.json", b"{}")
    run = RunDirectory(tmp_path / "two")
    run.create()
    with pytest.raises(LockstepError, match="is intact"):
        Mirror(url, run).open()


class UnreliableStore(Store):
    """Fails `failures` times when a file is sent whose name has this ending."""

    failures, ending = 0, ""

    def send(self, path: Path, name: str) -> None:
        if self.failures and name.endswith(self.ending):
            self.failures -= 1
            raise StoreError("The network is down.")
        super().send(path, name)


def test_a_failed_upload_is_retried(url: str, tmp_path: Path) -> None:
    mirrored = open_mirror(url, tmp_path)
    mirrored.store = unreliable = UnreliableStore(url)
    unreliable.failures, unreliable.ending = 2, "manifest.json"
    mirrored.upload(save(tmp_path, 3), retain_all)
    mirrored.wait()
    assert [line.kind for line in mirrored.take_events()] == ["fault", "upload"]
    mirrored.close(failing=False)


def test_training_continues_without_the_store_and_fails_at_the_end(url: str, tmp_path: Path) -> None:
    train(url, tmp_path, 3)
    mirrored = open_mirror(url, tmp_path)
    mirrored.store = unreliable = UnreliableStore(url)
    unreliable.failures = 1000
    mirrored.upload(save(tmp_path, 6), retain_all)
    mirrored.wait()
    assert "could not be uploaded" in mirrored.take_events()[-1].sentence
    with pytest.raises(LockstepError, match="step-00000006 could not be uploaded .*: The network is down"):
        mirrored.close(failing=False)
    committed = [name for name in Store(url).list() if name.endswith("manifest.json")]
    assert committed == ["checkpoints/step-00000003/manifest.json"], "the last committed one is retained"


def test_old_checkpoints_on_the_store_are_deleted_by_the_local_rule(url: str, tmp_path: Path) -> None:
    from lockstep.run.retention import keep_best_and_last

    mirrored = open_mirror(url, tmp_path / "one")
    for step, score in ((3, 1.0), (6, 9.0), (9, 2.0)):
        mirrored.upload(save(tmp_path / "one", step, score), keep_best_and_last(1, 1, higher_is_better=True))
    mirrored.close(failing=False)
    assert {name.split("/")[1] for name in Store(url).list("checkpoints")} == {"step-00000006", "step-00000009"}
    mirrored = open_mirror(url, tmp_path / "two")  # it has only the last one, and must retain the best
    mirrored.upload(save(tmp_path / "two", 12, 3.0), keep_best_and_last(1, 1, higher_is_better=True))
    mirrored.close(failing=False)
    assert {name.split("/")[1] for name in Store(url).list("checkpoints")} == {"step-00000006", "step-00000012"}


# The lease


def write_foreign_lease(url: str, **facts: Any) -> None:
    """Writes a lease of another machine."""
    record = {"host": "another", "pid": 1, "launch": "theirs", "time": time.time(), "released": False} | facts
    Store(url).write(lease.NAME, json.dumps(record).encode())


def test_a_run_that_is_being_trained_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    first, second = Lease(Store(url)), Lease(Store(url))
    reported: list[str] = []
    first.take(reported.append)
    with pytest.raises(LockstepError, match=f"is being trained right now .process {os.getpid()} on"):
        second.take(reported.append)
    assert "waiting to see" in reported[0]
    first.release()
    second.take(reported.append)
    assert second.previous_launch == first.launch
    second.release()


@pytest.mark.parametrize("age", [0.0, 1000.0])
def test_an_expired_lease_is_taken_over(url: str, age: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(lease, "STALE_SECONDS", 0.3)
    write_foreign_lease(url, time=time.time() - age)
    mine, reported = Lease(Store(url)), list[str]()
    mine.take(reported.append)
    assert "has not renewed its lease" in reported[-1]
    mine.release()


def test_a_lease_of_a_dead_local_process_is_taken_at_once(url: str) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    write_foreign_lease(url, host=socket.gethostname(), pid=dead.pid)
    mine, reported = Lease(Store(url)), list[str]()
    mine.take(reported.append)
    assert reported == []
    mine.release()


def test_a_launch_whose_run_was_taken_over_stops_uploading(url: str, tmp_path: Path) -> None:
    mirrored = open_mirror(url, tmp_path)
    write_foreign_lease(url)
    mirrored.upload(save(tmp_path, 3), retain_all)
    mirrored.wait()
    with pytest.raises(LockstepError, match="was taken over by process 1 on another"):
        mirrored.take_events()
    mirrored.close(failing=True)
    assert list(Store(url).list()) == [lease.NAME]
    assert (record := lease.read_lease(Store(url))) is not None
    assert record.launch == "theirs"
