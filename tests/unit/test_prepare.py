import errno
import gzip
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep import demo_corpus
from lockstep.cli.common import prepare_corpus
from lockstep.cli.describe_command import describe_cleaning
from lockstep.config import RunConfig
from lockstep.data.corpus import binary_corpus as corpus_module
from lockstep.data.corpus import prepare as prepare_module
from lockstep.data.corpus.binary_corpus import Corpus
from lockstep.data.corpus.pool import Pool, WorkerEnded
from lockstep.data.corpus.prepare import compute_fingerprint, corpus_folder, prepare
from lockstep.data.data_settings import DataSettings
from lockstep.errors import LockstepError

ENGLISH = [start + end for start in ("dog", "house", "small", "run", "tree", "young") for end in ("", "er", "ing", "s")]
GERMAN = [start + end for start in ("Hund", "Haus", "klein", "läuf", "Baum", "jung") for end in ("", "er", "ung", "en")]

WORKER = """
import sys
from lockstep.data.corpus.prepare import prepare
from lockstep.data.data_settings import DataSettings
stages = []
def report(stage, count, total):
    if stage == "encode" and "encode" not in stages:
        print("encoding", flush=True)
        sys.stdin.readline()
    stages.append(stage)
settings = DataSettings.model_validate_json(sys.argv[1])
print("started", flush=True)
corpus = prepare(settings, report)
print("made" if stages else "opened", corpus.digest, flush=True)
"""


def write_text(folder: Path, name: str, lines: int, seed: int = 1) -> None:
    draw = random.Random(f"{name}{seed}")
    chosen: dict[tuple[int, ...], None] = {}  # as a set that keeps its order
    while len(chosen) < lines:
        chosen[tuple(draw.choices(range(len(ENGLISH)), k=draw.randint(2, 8)))] = None
    for language, words in (("en", ENGLISH), ("de", GERMAN)):
        content = "".join(" ".join(words[i] for i in sentence) + ".\n" for sentence in chosen)
        (folder / f"{name}.{language}").write_text(content, encoding="utf-8")


def make_settings(folder: Path, corpus: Path | None = None, **more: Any) -> DataSettings:
    values = {"train": ["train"], "validation": ["val"], "vocabulary": {"size": 310}, "corpus": corpus} | more
    return DataSettings.model_validate({"folder": folder} | values)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    folder = tmp_path / "text"
    folder.mkdir()
    write_text(folder, "train", 300)
    write_text(folder, "val", 20, seed=2)
    return folder


def start(settings: DataSettings) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, settings.model_dump_json()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def partials(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".partial-" in path.name)


def test_a_prepared_corpus_holds_the_text(text: Path, tmp_path: Path) -> None:
    corpus = prepare(make_settings(text, tmp_path / "c"))
    train = corpus.set("train")
    ids, lengths = train.target.gather(np.arange(len(train)))
    sentences = [part[:-1].tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]
    assert corpus.vocabulary.decode(sentences) == (text / "train.de").read_text().splitlines()
    assert corpus.texts("validation")[0] == (text / "val.en").read_text().splitlines()
    assert not corpus.has("test")
    facts = corpus.facts
    assert facts["sets"]["train"]["lines"] == len(train) == 300
    assert facts["sets"]["train"]["target_words"] == len(ids)
    assert facts["vocabulary"]["size"] == corpus.vocabulary.size == 310
    assert facts["megabytes"] == pytest.approx(sum(path.stat().st_size for path in text.iterdir()) / 1e6, abs=1e-3)
    assert [(Path(file["path"]).name, file["bytes"]) for file in facts["files"]] == [
        (name, (text / name).stat().st_size) for name in ("train.en", "train.de", "val.en", "val.de")
    ]


def test_a_vocabulary_that_is_too_large_for_the_text_is_made_smaller(text: Path, tmp_path: Path) -> None:
    settings = make_settings(text, tmp_path / "c", vocabulary={"size": 5000})
    corpus = prepare(settings)
    size = corpus.facts["vocabulary"]["size"]
    assert corpus.vocabulary.size == size < 5000
    sentence = f"{size:,} pieces: the text has too few for the 5,000 of data.vocabulary.size."
    assert sentence in describe_cleaning(corpus.facts)
    assert prepare(settings).digest == prepare(settings, force=True).digest == corpus.digest
    assert describe_cleaning(prepare(make_settings(text, tmp_path / "d")).facts) == []


def test_removed_training_pairs_are_counted(text: Path, tmp_path: Path) -> None:
    with (text / "train.en").open("a") as en, (text / "train.de").open("a") as de:
        en.write("\n" + "long " * 30 + "\n" + "a\n" + "qwxyz" * 40 + "\n▁\n" + "same  old\nsame old\nbell \x07\n")
        de.write("leer\n" + "lang " * 30 + "\n" + "ein " * 9 + "\n" + "x\nx\n" + "immer gleich\n" * 2 + "Klingel\n")
        en.write("never translated at all\nин Москва\n")
        de.write("never translated at all\nin Moskau\n")
    corpus = prepare(make_settings(text, tmp_path / "c", max_words=25, max_pieces=70))
    train = corpus.facts["sets"]["train"]
    reasons = {"control": 1, "long": 1, "ratio": 1, "identical": 1, "script": 1, "duplicate": 1, "pieces": 1}
    assert train["removed"] == {"empty": 2} | reasons
    assert (train["read"], train["lines"]) == (310, 301)
    assert train["read"] == train["lines"] + sum(train["removed"].values())
    assert corpus.facts["sets"]["validation"]["removed"] == {}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_the_same_text_makes_the_same_corpus(text: Path, tmp_path: Path, kind: str) -> None:
    vocabulary = {"size": 310, "kind": kind, "sample": 200}
    first = prepare(make_settings(text, tmp_path / "a", vocabulary=vocabulary))
    for path in text.glob("*.de"):
        (text / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    second = prepare(make_settings(text, tmp_path / "b", vocabulary=vocabulary))
    assert first.digest == second.digest
    assert first.digest != prepare(make_settings(text, tmp_path / "c")).digest


def test_the_corpus_does_not_depend_on_the_shards(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    single = prepare(make_settings(text, tmp_path / "a"))
    monkeypatch.setattr(prepare_module, "SHARD_LINES", 7)
    cut = prepare(make_settings(text, tmp_path / "b", processes=1))
    assert cut.digest == single.digest
    assert cut.facts["sets"] == single.facts["sets"]


def test_the_corpus_does_not_depend_on_the_number_of_processes(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in text.glob("train.*"):
        path.write_text(path.read_text() + "".join(path.read_text().splitlines(keepends=True)[:5]))
    monkeypatch.setattr(prepare_module, "SHARD_LINES", 40)
    made = [prepare(make_settings(text, tmp_path / str(count), processes=count)) for count in (1, 2, 3)]
    assert len({corpus.digest for corpus in made}) == 1
    assert made[0].facts == made[1].facts == made[2].facts
    assert made[0].facts["sets"]["train"]["removed"] == {"duplicate": 5}


def test_stages_are_reported_with_growing_counts(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "SHARD_LINES", 100)
    reports: list[tuple[str, int]] = []
    prepare(make_settings(text, tmp_path / "c", processes=1), lambda stage, done, _: reports.append((stage, done)))
    assert list(dict.fromkeys(stage for stage, _ in reports)) == ["read", "vocabulary", "encode"]
    for stage, total in (("read", 320), ("vocabulary", 300), ("encode", 320)):
        counts = [lines for name, lines in reports if name == stage]
        assert counts == sorted(counts)
        assert counts[-1] == total


def test_without_a_corpus_folder_one_is_named_after_settings_and_text(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = make_settings(text)
    folder = corpus_folder(settings)
    assert folder == Path(f"corpora/en-de-310-{compute_fingerprint(settings)[:10]}")
    assert prepare(settings).folder == folder.resolve()
    os.utime(text / "val.en", ns=(0, 0))
    names = {folder, corpus_folder(settings), corpus_folder(make_settings(text, max_words=9))}
    assert len(names) == 3


def test_a_ready_corpus_is_opened_and_not_made_again(text: Path, tmp_path: Path) -> None:
    settings = make_settings(text, tmp_path / "c")
    prepare(settings)

    def fail(stage: str, lines: int, total: int | None) -> None:
        raise AssertionError("made again")

    prepare(settings, fail)
    os.utime(text / "train.en", ns=(0, 0))
    prepare(settings, fail)
    moved = text.rename(tmp_path / "moved")
    prepare(make_settings(moved, tmp_path / "c"), fail)
    prepare(make_settings(tmp_path / "nowhere", tmp_path / "c"), fail)


def test_a_corpus_made_from_other_settings_is_refused_key_by_key(text: Path, tmp_path: Path) -> None:
    prepare(make_settings(text, tmp_path / "c"))
    with pytest.raises(LockstepError) as caught:
        prepare(make_settings(text, tmp_path / "c", vocabulary={"size": 320}, max_words=50))
    assert "data.max_words 200 -> 50; data.vocabulary.size 310 -> 320." in caught.value.message
    assert "--force" in caught.value.remedy


@pytest.mark.parametrize("content", ["other", "longer"])
def test_a_corpus_made_from_other_text_is_refused(text: Path, tmp_path: Path, content: str) -> None:
    prepare(make_settings(text, tmp_path / "c"))
    old = (text / "val.en").read_text()
    new = old.replace("o", "u") if content == "other" else old.replace("o", "oo")
    (text / "val.en").write_text(new)
    shown = "has other content" if content == "other" else f"{len(old)} bytes -> {len(new)} bytes"
    with pytest.raises(LockstepError, match=f"val.en {shown}"):
        prepare(make_settings(text, tmp_path / "c"))


def test_force_makes_a_corpus_again(text: Path, tmp_path: Path) -> None:
    first = prepare(make_settings(text, tmp_path / "c"))
    second = prepare(make_settings(text, tmp_path / "c", vocabulary={"size": 320}), force=True)
    assert first.digest != second.digest == Corpus.open(tmp_path / "c").digest
    (tmp_path / "c" / "corpus.json").unlink()
    with pytest.raises(LockstepError, match=r"without its corpus\.json"):
        prepare(make_settings(text, tmp_path / "c"))
    assert prepare(make_settings(text, tmp_path / "c"), force=True).digest == first.digest
    assert not partials(tmp_path)


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_with_other_files_is_never_replaced(text: Path, tmp_path: Path, force: bool) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("precious")
    with pytest.raises(LockstepError, match=r"holds other files \(thesis\.tex\)"):
        prepare(make_settings(text, tmp_path / "home"), force=force)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "precious"


def test_an_empty_folder_and_a_link_to_it_can_become_a_corpus(text: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    prepare(make_settings(text, tmp_path / "link"))
    assert Corpus.open(tmp_path / "disk").digest == Corpus.open(tmp_path / "link").digest


def test_errors_in_the_text_leave_nothing_behind(text: Path, tmp_path: Path) -> None:
    (text / "val.de").write_text("zu\nwenig\n")
    with pytest.raises(LockstepError, match=r"val\.en has 20 lines but .*val\.de has 2\."):
        prepare(make_settings(text, tmp_path / "c"))
    write_text(text, "val", 20)
    with (text / "val.de").open("a") as de, (text / "val.en").open("a") as en:
        de.write("\n")
        en.write("one more\n")
    with pytest.raises(LockstepError, match=r"Line 21 of .*val\.de is empty"):
        prepare(make_settings(text, tmp_path / "c"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text"]


def test_text_without_a_usable_pair_is_an_error(text: Path, tmp_path: Path) -> None:
    (text / "train.de").write_text("\n" * 300)
    with pytest.raises(LockstepError, match="No training pair is left"):
        prepare(make_settings(text, tmp_path / "c"))


def test_text_that_changes_during_preparation_is_an_error(text: Path, tmp_path: Path) -> None:
    def change(stage: str, lines: int, total: int | None) -> None:
        if stage == "encode":
            os.utime(text / "train.en", ns=(0, 0))

    with pytest.raises(LockstepError, match="changed while"):
        prepare(make_settings(text, tmp_path / "c"), change)
    assert not partials(tmp_path)


def prepare_with_fault(settings: DataSettings, fault: str) -> tuple[int, list[tuple[str, int, int]]]:
    """Prepares in shards of 40 lines, in a process that a fault may kill. Returns its exit code and its reports."""
    program = """
import sys
from lockstep.data.corpus import prepare
from lockstep.data.data_settings import DataSettings
prepare.SHARD_LINES = 40
report = lambda *words: print(*words, flush=True)
prepare.prepare(DataSettings.model_validate_json(sys.argv[1]), report)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, settings.model_dump_json()],
        env=os.environ | {"LOCKSTEP_FAULT": fault},
        capture_output=True,
        text=True,
    )
    reports = [line.split() for line in ran.stdout.splitlines()]
    return ran.returncode, [(stage, int(done), int(total)) for stage, done, total in reports if total != "None"]


@pytest.mark.parametrize(
    ("fault", "reused"),
    [
        ("phase=cleaned:step=3", {"cleaned": 3}),
        ("phase=vocabulary", {"cleaned": 8}),
        ("phase=encoded:step=5", {"cleaned": 8, "encoded": 5}),
        ("phase=joined", {"cleaned": 8, "encoded": 8}),
    ],
)
def test_a_killed_preparation_continues_with_the_missing_shards(
    text: Path, tmp_path: Path, fault: str, reused: dict[str, int]
) -> None:
    expected = prepare(make_settings(text, tmp_path / "expected"))
    settings = make_settings(text, tmp_path / "c", processes=2)
    assert prepare_with_fault(settings, f"kill:{fault}")[0] == -signal.SIGKILL
    assert not (tmp_path / "c").exists()
    [work] = partials(tmp_path)
    written = {path.name: path.stat().st_mtime_ns for path in (tmp_path / work).glob("0*") if "aside" not in path.name}
    code, reports = prepare_with_fault(settings, "kill:phase=joined")
    assert code == -signal.SIGKILL
    assert all((tmp_path / work / name).stat().st_mtime_ns == written[name] for name in written)
    for stage, least in reused.items():  # workers may have finished more than they had reported
        [(done, total)] = [(done, total) for name, done, total in reports if name == stage]
        assert total == 8
        assert least <= done <= min(8, least + 5)
    assert {name for name, _, _ in reports} & {"cleaned", "encoded"} == reused.keys()
    assert prepare(settings).digest == expected.digest
    assert not partials(tmp_path)


def test_a_damaged_shard_is_made_again(text: Path, tmp_path: Path) -> None:
    settings = make_settings(text, tmp_path / "c", processes=1)
    prepare_with_fault(settings, "kill:phase=joined")
    [work] = partials(tmp_path)
    for name in ("000002.cleaned", "000004.encoded"):
        content = bytearray((tmp_path / work / name).read_bytes())
        content[len(content) // 2] ^= 0xFF
        (tmp_path / work / name).write_bytes(content)
    code, reports = prepare_with_fault(settings, "")
    assert code == 0
    assert {("cleaned", 7, 8), ("encoded", 7, 8)} <= set(reports)
    assert Corpus.open(tmp_path / "c").digest == prepare(make_settings(text, tmp_path / "expected")).digest


def test_the_work_folder_of_other_settings_is_removed(text: Path, tmp_path: Path) -> None:
    prepare_with_fault(make_settings(text, tmp_path / "c"), "kill:phase=vocabulary")
    [left] = partials(tmp_path)
    code, reports = prepare_with_fault(make_settings(text, tmp_path / "c", max_words=50), "kill:phase=vocabulary")
    assert code == -signal.SIGKILL
    assert "cleaned" not in [stage for stage, _, _ in reports]
    [new] = partials(tmp_path)
    assert new != left


def test_workers_end_with_a_killed_parent(text: Path, tmp_path: Path) -> None:
    program = """
from lockstep.data.corpus.pool import Pool
import os, time
with Pool(2) as pool:
    for pid in pool.map(os.system, ["echo $PPID", "echo $PPID"]): pass
    print("pids", *(worker._process.pid for worker in pool._workers), flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        line = parent.stdout.readline().split()
        assert line[0] == "pids"
        parent.kill()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in line[1:]):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ctrl_c_does_not_reach_the_workers() -> None:
    with Pool(2) as pool:
        assert os.getpgrp() not in list(pool.map(os.getpgid, [0, 0]))


INTERRUPTED = """
import os, signal, sys
from lockstep.cli.main import main
from lockstep.data.corpus import pool, prepare

class InterruptedPool(pool.Pool):
    def _start(self, processes):
        if not self._workers:
            super()._start(processes)
            os.killpg(0, NUMBER)

prepare.SHARD_LINES = 40
prepare.Pool = InterruptedPool
main()
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("command", ["prepare", "train"])
def test_a_signal_stops_preparation_with_one_sentence(
    text: Path, tmp_path: Path, command: str, number: int, code: int
) -> None:
    settings = [f"data.folder={text}", "data.train=[train]", f"data.corpus={tmp_path / 'c'}", "data.processes=2"]
    (tmp_path / "my.yaml").write_text("batch: {words: 100}\n")
    program = INTERRUPTED.replace("NUMBER", str(number))
    ended = subprocess.run(
        [sys.executable, "-c", program, command, "my.yaml", *settings, "data.vocabulary.size=310"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert ended.stderr.strip() == "Stopped. The same command continues the preparation."
    assert ended.returncode == code
    assert prepare(make_settings(text, tmp_path / "c")).facts["sets"]["train"]["lines"] == 300


WAITING = """
import signal, sys, time
from lockstep.data.corpus.pool import Pool

def stop(number, frame):
    sys.exit(143)

signal.signal(signal.SIGTERM, stop)
with Pool(2) as pool:
    for pid in pool.map(print, ["one job", "another one"]): pass
    print("pids", *(worker._process.pid for worker in pool._workers), flush=True)
    if sys.argv[1] == "map":
        list(pool.map(time.sleep, [600, 600]))
    else:
        pool.run(time.sleep, 600)
"""


@pytest.mark.parametrize("how", ["map", "run"])
def test_a_signal_does_not_wait_for_the_jobs_that_have_begun(how: str) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITING, how], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        _, *pids = parent.stdout.readline().split()
        parent.terminate()
        assert parent.wait(timeout=30) == 143
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_vocabulary_of_much_text_is_trained_in_another_process(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[bool] = []

    class CountingPool(Pool):
        def run(self, function: Callable[[Any], Any], job: Any, apart: bool = False) -> Any:
            runs.append(apart)
            return super().run(function, job, apart)

    monkeypatch.setattr(prepare_module, "Pool", CountingPool)
    plain = prepare(make_settings(text, tmp_path / "plain", processes=1)).digest
    monkeypatch.setattr(prepare_module, "APART_PAIRS", 100)
    assert prepare(make_settings(text, tmp_path / "apart", processes=1)).digest == plain
    assert runs == [False, True]
    with Pool(1) as workers:
        assert workers.run(os.getpgid, 0, apart=True) != os.getpgid(0)


def test_the_command_says_what_a_new_corpus_lost(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in text.glob("train.*"):
        path.write_text(path.read_text() + "\n" + "".join(path.read_text().splitlines(keepends=True)[:5]))
    data = make_settings(text, tmp_path / "c", vocabulary={"size": 5000})
    config = RunConfig.model_validate({"data": data.model_dump()})
    corpus = prepare_corpus(config, says_removed=True)
    removed, pieces = capsys.readouterr().err.strip().split("\n")
    assert removed == (
        f"Removed 6 of 306 pairs: 1 empty, 5 duplicate (`lockstep data removed {corpus.folder}` shows them)."
    )
    assert pieces.endswith("the text has too few for the 5,000 of data.vocabulary.size.")
    prepare_corpus(config, says_removed=True)
    assert capsys.readouterr().err.strip() == ""


def test_a_worker_that_dies_is_an_error_that_names_the_signal() -> None:
    with pytest.raises(WorkerEnded, match="SIGKILL") as caught, Pool(2) as pool:
        list(pool.map(signal.raise_signal, [signal.SIGKILL, signal.SIGKILL]))
    assert "data.processes" in caught.value.remedy


def test_errors_in_jobs_and_in_their_iterator_come_in_order() -> None:
    def jobs() -> Iterator[str]:
        yield from ("1", "2", "3")
        raise LockstepError("The file broke.", "Mend it.", code=2)

    results: list[int] = []
    with Pool(2) as pool:
        with pytest.raises(LockstepError, match=r"The file broke\. Mend it\.") as caught:
            results.extend(pool.map(int, jobs()))
        assert (results, caught.value.code) == ([1, 2, 3], 2)
        with pytest.raises(ValueError, match="'x'"):
            list(pool.map(int, ["1", "x", *map(str, range(50))]))
        assert list(pool.map(int, ["4", "5", "6"])) == [4, 5, 6]
    assert LockstepError("a", "b", 2).__reduce__() == (LockstepError, ("a", "b", 2))


def test_concurrent_processes_make_a_corpus_once(text: Path, tmp_path: Path) -> None:
    settings = make_settings(text, tmp_path / "c")
    with start(settings) as first:
        assert first.stdout
        assert [first.stdout.readline() for _ in range(2)] == ["started\n", "encoding\n"]
        with start(settings) as second, start(settings) as third:
            assert second.stdout
            assert third.stdout
            assert second.stdout.readline() == third.stdout.readline() == "started\n"
            made = first.communicate("\n")[0].split()
            assert made == ["made", Corpus.open(tmp_path / "c").digest]
            assert second.communicate()[0].split() == third.communicate()[0].split() == ["opened", made[1]]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "Free some space"), (errno.EROFS, "may write"), (errno.EIO, "Check the folder")],
)
def test_a_failing_disk_is_named_and_nothing_is_left(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(corpus_module._SideWriter, "append", fail)
    with pytest.raises(
        LockstepError, match=f"The corpus {tmp_path / 'c'} cannot be made: {os.strerror(number)}"
    ) as caught:
        prepare(make_settings(text, tmp_path / "c"))
    assert remedy in caught.value.remedy
    assert not partials(tmp_path)
    assert not (tmp_path / "c").exists()


@pytest.fixture
def open_folder(text: Path) -> Iterator[Path]:
    """A folder that an ordinary user may read but not write. Root becomes an ordinary user."""
    with tempfile.TemporaryDirectory() as name:
        text = text.rename(Path(name) / "text")
        Path(name).chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        yield Path(name)
        os.seteuid(user)
        Path(name).chmod(0o755)


def test_a_folder_that_may_not_be_written_is_named(open_folder: Path) -> None:
    with pytest.raises(LockstepError, match=f"The corpus {open_folder / 'c'} cannot be made: Permission denied"):
        prepare(make_settings(open_folder / "text", open_folder / "c"))


def test_the_grammar_makes_all_sets_in_either_direction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"train": 50, "validation": 3, "test": 2, "seed": 7}
    values = {"train": [], "validation": [], "grammar": made, "vocabulary": {"size": 360}}
    corpus = prepare(make_settings(tmp_path, tmp_path / "c", **values))
    assert [len(corpus.set(name)) for name in ("train", "validation", "test")] == [50, 3, 2]
    expected = list(islice(demo_corpus.generate_pairs(7, "test"), 2))
    assert list(zip(*corpus.texts("test"), strict=True)) == expected
    swapped = prepare(make_settings(tmp_path, tmp_path / "d", languages=("de", "en"), **values))
    assert list(zip(*swapped.texts("test"), strict=True)) == [(german, english) for english, german in expected]
    monkeypatch.setattr(demo_corpus, "VERSION", demo_corpus.VERSION + 1)
    with pytest.raises(LockstepError, match="version of the grammar"):
        prepare(make_settings(tmp_path, tmp_path / "c", **values))


def test_importing_does_not_load_heavy_libraries() -> None:
    check = (
        "import sys, lockstep.data.corpus.prepare; print({'sentencepiece', 'torch', 'zstandard'} & sys.modules.keys())"
    )
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout == "set()\n"
