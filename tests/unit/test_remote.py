"""Object stores, with fsspec's memory and local file systems: what is there, what is not, and who wins."""

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


def test_addresses_are_told_from_paths() -> None:
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
    with pytest.raises(LockstepError, match=r"data\.corpus=5 is wrong: input is not a path or an address"):
        build({"data": data | {"corpus": 5}, "batch": {"words": 100}}, "a test")
    assert describe("data.corpus")[0]["type"] == "path or address | none"


def test_an_object_in_a_folder_is_never_seen_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, copied = Store(f"file://{tmp_path}/bucket"), shutil.copyfile
    for name in ("old", "new"):
        (tmp_path / name).write_text(name)
    store.send(tmp_path / "old", "a/manifest")

    def cut_off(source: str, target: str, **options: Any) -> None:
        copied(source, target)
        Path(target).write_text("ne")
        raise OSError("cut off")

    monkeypatch.setattr(shutil, "copyfile", cut_off)
    with pytest.raises(StoreError, match="cut off"):
        store.send(tmp_path / "new", "a/manifest")
    assert store.read("a/manifest") == b"old"
    assert list(store.list()) == ["a/manifest"]


def test_a_store_keeps_what_it_is_given(url: str, tmp_path: Path) -> None:
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
    with pytest.raises(StoreError, match="it is not there"):
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
    modules = "lockstep.cli.main, lockstep.data.corpus.prepare, lockstep.remote.mirror, lockstep.remote.reading"
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


def test_a_corpus_that_is_not_whole_is_not_taken(url: str, text: Path, tmp_path: Path, cache: Path) -> None:
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
    found = fetch_corpus(url)
    assert found is not None
    assert sha256(found / "train.source.ids") == sha256(corpus.folder / "train.source.ids")


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
    """A checkpoint as small as they come."""
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


def keep_all(all_saved: list[Checkpoint]) -> set[Path]:
    return {saved.path for saved in all_saved}


def opened(url: str, folder: Path) -> Mirror:
    run = RunDirectory(folder)
    run.create()
    found = Mirror(url, run)
    found.open()
    return found


def train(url: str, folder: Path, *new_steps: int) -> list[str]:
    """A launch that saves these steps and ends; returns the checkpoints that it found at its start."""
    found = opened(url, folder)
    names = sorted(path.name for path in (folder / "checkpoints").glob("step-*"))
    (folder / "choices.json").write_text("{}")
    (folder / "config.yaml").write_text(f"trained: in {folder.name}")
    for step in new_steps:
        found.upload(save(folder, step), keep_all)
    found.close(failing=False)
    return names


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
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
    found, sent = opened(url, tmp_path / "one"), list[str]()
    send = found.store.send

    def noted(path: Path, name: str) -> None:
        sent.append(name)
        send(path, name)

    found.upload(save(tmp_path / "one", 3), keep_all)
    assert found.wait()
    scored = save(tmp_path / "one", 3, score=0.5)
    monkeypatch.setattr(found.store, "send", noted)
    found.upload(scored, keep_all)
    assert found.wait()
    assert [name for name in sent if name.startswith("checkpoints/")] == ["checkpoints/step-00000003/manifest.json"]
    found.upload(scored, keep_all)  # nothing is new
    found.close(failing=False)
    assert [line.facts["bytes"] for line in found.news()] == [scored.bytes, 0]
    on_store = parse(Path("step-00000003"), Store(url).read("checkpoints/step-00000003/manifest.json") or b"")
    assert on_store is not None
    assert on_store.score == 0.5


def test_an_upload_is_waited_for_in_turns(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, begun, done = opened(url, tmp_path / "one"), threading.Event(), threading.Event()
    send = found._send

    def slowly(saved: Checkpoint, sent: set[str]) -> None:
        begun.set()
        done.wait(10.0)
        send(saved, sent)

    monkeypatch.setattr(found, "_send", slowly)
    found.upload(save(tmp_path / "one", 3), keep_all)
    assert begun.wait(10.0)
    assert not found.wait(0.01)
    done.set()
    assert found.wait(10.0)
    found.close(failing=False)


def test_a_local_copy_that_is_ahead_is_kept_and_uploaded(url: str, tmp_path: Path) -> None:
    train(url, tmp_path, 3)
    ahead = save(tmp_path, 6)  # the upload was cut off
    found = opened(url, tmp_path)
    assert ahead.damage() is None
    found.upload(ahead, keep_all)
    found.close(failing=False)
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


def test_a_checkpoint_without_manifest_is_not_there_and_a_damaged_one_is_passed_over(url: str, tmp_path: Path) -> None:
    train(url, tmp_path / "one", 3, 6, 9)
    store = Store(url)
    store.remove(["checkpoints/step-00000009/manifest.json"])
    store.write("checkpoints/step-00000006/state/0.safetensors", b"other")
    found = opened(url, tmp_path / "two")
    assert [path.name for path in (tmp_path / "two/checkpoints").glob("step-*")] == ["step-00000003"]
    news = found.news()
    assert [line.kind for line in news] == ["fault"]
    assert "step-00000006" in news[0].sentence
    found.upload(save(tmp_path / "two", 12), keep_all)
    found.close(failing=False)
    kept = {name.split("/")[1] for name in store.list("checkpoints")}
    assert kept == {"step-00000003", "step-00000012"}, "what was cut off or damaged goes when the next one is there"


def test_when_nothing_on_the_store_is_whole_nothing_is_overwritten(url: str, tmp_path: Path) -> None:
    train(url, tmp_path / "one", 3)
    Store(url).write("checkpoints/step-00000003/manifest.json", b"{}")
    run = RunDirectory(tmp_path / "two")
    run.create()
    with pytest.raises(LockstepError, match="is whole"):
        Mirror(url, run).open()


class Unreliable(Store):
    """Fails as often as it is told, when a file is sent whose name has this ending."""

    failures, ending = 0, ""

    def send(self, path: Path, name: str) -> None:
        if self.failures and name.endswith(self.ending):
            self.failures -= 1
            raise StoreError("The network is down.")
        super().send(path, name)


def test_a_failing_upload_is_repeated(url: str, tmp_path: Path) -> None:
    found = opened(url, tmp_path)
    found.store = unreliable = Unreliable(url)
    unreliable.failures, unreliable.ending = 2, "manifest.json"
    found.upload(save(tmp_path, 3), keep_all)
    found.wait()
    assert [line.kind for line in found.news()] == ["fault", "upload"]
    found.close(failing=False)


def test_training_goes_on_without_the_store_and_fails_at_the_end(url: str, tmp_path: Path) -> None:
    train(url, tmp_path, 3)
    found = opened(url, tmp_path)
    found.store = unreliable = Unreliable(url)
    unreliable.failures = 1000
    found.upload(save(tmp_path, 6), keep_all)
    found.wait()
    assert "could not be uploaded" in found.news()[-1].sentence
    with pytest.raises(LockstepError, match="step-00000006 could not be uploaded .*: The network is down"):
        found.close(failing=False)
    committed = [name for name in Store(url).list() if name.endswith("manifest.json")]
    assert committed == ["checkpoints/step-00000003/manifest.json"], "the last good one stays"


def test_old_checkpoints_go_by_the_same_rule_as_here(url: str, tmp_path: Path) -> None:
    from lockstep.train.checkpoint_files import keep_best_and_last

    found = opened(url, tmp_path / "one")
    for step, score in ((3, 1.0), (6, 9.0), (9, 2.0)):
        found.upload(save(tmp_path / "one", step, score), keep_best_and_last(1, 1, higher_is_better=True))
    found.close(failing=False)
    assert {name.split("/")[1] for name in Store(url).list("checkpoints")} == {"step-00000006", "step-00000009"}
    found = opened(url, tmp_path / "two")  # it has the last one only, and must not forget the best
    found.upload(save(tmp_path / "two", 12, 3.0), keep_best_and_last(1, 1, higher_is_better=True))
    found.close(failing=False)
    assert {name.split("/")[1] for name in Store(url).list("checkpoints")} == {"step-00000006", "step-00000012"}


# The lease


def foreign(url: str, **facts: Any) -> dict[str, Any]:
    """A lease of another machine."""
    found = {"host": "another", "pid": 1, "launch": "theirs", "time": time.time(), "released": False} | facts
    Store(url).write(lease.NAME, json.dumps(found).encode())
    return found


def test_a_run_that_is_being_trained_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    holder, second = Lease(Store(url)), Lease(Store(url))
    said: list[str] = []
    holder.take(said.append)
    with pytest.raises(LockstepError, match=f"is being trained right now .process {os.getpid()} on"):
        second.take(said.append)
    assert "waiting to see" in said[0]
    holder.release()
    second.take(said.append)
    assert second.before == holder.launch
    second.release()


@pytest.mark.parametrize("age", [0.0, 1000.0])
def test_a_lease_that_nobody_renews_is_taken_over(url: str, age: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(lease, "STALE_SECONDS", 0.3)
    foreign(url, time=time.time() - age)
    mine, said = Lease(Store(url)), list[str]()
    mine.take(said.append)
    assert "has not been heard of" in said[-1]
    mine.release()


def test_a_dead_process_of_this_machine_is_not_waited_for(url: str) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    foreign(url, host=socket.gethostname(), pid=dead.pid)
    mine, said = Lease(Store(url)), list[str]()
    mine.take(said.append)
    assert said == []
    mine.release()


def test_a_launch_whose_run_was_taken_over_uploads_nothing_more(url: str, tmp_path: Path) -> None:
    found = opened(url, tmp_path)
    foreign(url)
    found.upload(save(tmp_path, 3), keep_all)
    found.wait()
    with pytest.raises(LockstepError, match="was taken over by process 1 on another"):
        found.news()
    found.close(failing=True)
    assert list(Store(url).list()) == [lease.NAME]
    assert (lease.read(Store(url)) or {})["launch"] == "theirs"
