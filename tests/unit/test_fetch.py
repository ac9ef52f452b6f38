"""Pieces are downloaded over real HTTP: resumed, retried, checked, cached, and killed in between."""

import gzip
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import md5, sha256
from pathlib import Path

import pytest
import yaml

from conftest import command, lockstep
from fileserver import FileServer, file_server
from lockstep.data.catalog import download as downloading
from lockstep.data.catalog.entries import CatalogEntry, Source
from lockstep.data.catalog.fetch import FetchedPiece, fetch, resolve
from lockstep.errors import LockstepError

CONTENT = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
DIGEST = f"sha256:{sha256(CONTENT).hexdigest()}"


@dataclass
class Log:
    """Collects the messages."""

    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def progress(self, name: str, done: int, total: int | None) -> None:
        pass

    def __contains__(self, text: str) -> bool:
        return any(text in line for line in self.lines)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "LONGEST_PAUSE_SECONDS", 0.01)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


@pytest.fixture
def log() -> Log:
    return Log()


def entry(*sources: str | dict[str, object], also: tuple[str, ...] = ()) -> CatalogEntry:
    tree = {
        "title": "a test",
        "recipe": "cifar10",
        "licence": "free",
        "citation": "none",
        "splits": "none",
        "pieces": {"piece": {"sources": list(sources), "also": list(also)}},
    }
    return CatalogEntry.model_validate(tree)


def known(address: str) -> dict[str, object]:
    return {"address": address, "digest": DIGEST, "bytes": len(CONTENT)}


def fetch_one(wanted: CatalogEntry, cache: Path, log: Log, tries: int = 3, folder: Path | None = None) -> FetchedPiece:
    return fetch("corpus", wanted, log, cache=cache, folder=folder, tries=tries)["piece"]


def names(cache: Path) -> set[str]:
    return {path.name for path in (cache / "corpus" / "piece").iterdir()}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_piece_gets_its_name_when_its_digest_matches(server: FileServer, tmp_path: Path, log: Log) -> None:
    server.serve("a.bin", CONTENT)
    piece = fetch_one(entry(known(server.address("a.bin"))), tmp_path, log)
    assert piece.path.read_bytes() == CONTENT
    assert piece.recorded == DIGEST
    assert names(tmp_path) == {"a.bin", "a.bin.json"}
    assert "a.bin: 0.3 MB, digest matches" in log


def test_a_second_fetch_sends_no_request(server: FileServer, tmp_path: Path, log: Log) -> None:
    server.serve("a.bin", CONTENT)
    wanted = entry(known(server.address("a.bin")))
    first = fetch_one(wanted, tmp_path, log)
    assert fetch_one(wanted, tmp_path, log) == first
    assert len(server.asked) == 1
    assert "a.bin: already there" in log


@pytest.mark.parametrize("tag", [True, False], ids=["tag", "length-only"])
def test_a_cut_connection_is_resumed(server: FileServer, tmp_path: Path, log: Log, tag: bool) -> None:
    served = server.serve("a.bin", CONTENT)
    served.cuts, served.tag = [100_000, 50_000], tag
    piece = fetch_one(entry(server.address("a.bin")), tmp_path, log)
    assert piece.path.read_bytes() == CONTENT
    assert server.ranges("a.bin") == ["", "bytes=100000-", "bytes=150000-"]
    assert "a.bin: resuming at 0.1 MB" in log


def test_a_server_without_ranges_starts_over(server: FileServer, tmp_path: Path, log: Log) -> None:
    served = server.serve("a.bin", CONTENT)
    served.cuts, served.ranges = [100_000], False
    piece = fetch_one(entry(server.address("a.bin")), tmp_path, log)
    assert piece.path.read_bytes() == CONTENT
    assert "the server sends it from the start" in log


def test_content_that_changed_in_between_is_not_mixed(server: FileServer, tmp_path: Path, log: Log) -> None:
    served = server.serve("a.bin", CONTENT)
    served.cuts = [100_000, 0]
    wanted = entry(server.address("a.bin"))
    with pytest.raises(LockstepError, match="after 100,000 of 300,000 bytes"):
        fetch_one(wanted, tmp_path, log, tries=1)
    assert names(tmp_path) == {"a.bin.part", "a.bin.part.json"}
    served.content = OTHER
    assert fetch_one(wanted, tmp_path, log).path.read_bytes() == OTHER


def test_a_wrong_continuation_is_downloaded_again(server: FileServer, tmp_path: Path, log: Log) -> None:
    """Without an ETag the server cannot detect that the first part belongs to another file; the digest does."""
    served = server.serve("a.bin", OTHER)
    served.cuts, served.tag = [100_000, 0], False
    wanted = entry(known(server.address("a.bin")))
    with pytest.raises(LockstepError, match="after 100,000"):
        fetch_one(wanted, tmp_path, log, tries=1)
    served.content = CONTENT
    assert fetch_one(wanted, tmp_path, log).path.read_bytes() == CONTENT
    assert "the resumed file has the wrong content" in log


def test_a_mirror_resumes_the_download_of_the_first_source(server: FileServer, tmp_path: Path, log: Log) -> None:
    server.serve("one/a.bin", CONTENT).cuts = [200_000, 0]
    server.serve("two/a.bin", CONTENT)
    wanted = entry(known(server.address("one/a.bin")), known(server.address("two/a.bin")))
    assert fetch_one(wanted, tmp_path, log).path.read_bytes() == CONTENT
    assert server.ranges("two/a.bin") == ["bytes=200000-"]


@pytest.mark.parametrize("failures", [[503], [500, 429]])
def test_a_busy_server_is_retried(server: FileServer, tmp_path: Path, log: Log, failures: list[int]) -> None:
    server.serve("a.bin", CONTENT).failures = failures
    assert fetch_one(entry(server.address("a.bin")), tmp_path, log).path.read_bytes() == CONTENT
    assert "trying again" in log


def test_a_missing_file_is_not_requested_again(server: FileServer, tmp_path: Path, log: Log) -> None:
    with pytest.raises(LockstepError, match="the server answers 404"):
        fetch_one(entry(server.address("a.bin")), tmp_path, log)
    assert len(server.asked) == 1


def test_downloads_without_progress_are_given_up(server: FileServer, tmp_path: Path, log: Log) -> None:
    served = server.serve("a.bin", CONTENT)
    served.cuts, served.ranges = [100_000] * 9, False
    with pytest.raises(LockstepError, match="after 100,000 of 300,000 bytes"):
        fetch_one(entry(server.address("a.bin")), tmp_path, log)
    assert len(server.asked) == 4
    assert "a.bin" not in names(tmp_path)


def test_the_next_source_is_tried(server: FileServer, tmp_path: Path, log: Log) -> None:
    server.serve("wrong.bin", OTHER)
    server.serve("right.bin", CONTENT)
    dead = f"http://127.0.0.1:{free_port()}/a.bin"
    wanted = entry(dead, known(server.address("wrong.bin")), known(server.address("right.bin")))
    piece = fetch_one(wanted, tmp_path, log)
    assert piece.path.read_bytes() == CONTENT
    assert piece.address == server.address("right.bin")
    assert "the connection is refused" in log
    assert "has the digest sha256:" in log
    assert names(tmp_path) == {"right.bin", "right.bin.json"}


@pytest.mark.parametrize(
    ("digest", "size", "message"),
    [(DIGEST, None, "has the digest sha256:"), (None, 299_999, "has 300,000 bytes instead of 299,999")],
)
def test_wrong_content_never_gets_the_name(
    server: FileServer, tmp_path: Path, log: Log, digest: str | None, size: int | None, message: str
) -> None:
    server.serve("a.bin", OTHER)
    wanted = entry({"address": server.address("a.bin"), "digest": digest, "bytes": size})
    with pytest.raises(LockstepError, match=message):
        fetch_one(wanted, tmp_path, log)
    assert names(tmp_path) == set()


def test_a_damaged_file_in_the_cache_is_fetched_again(server: FileServer, tmp_path: Path, log: Log) -> None:
    server.serve("a.bin", CONTENT)
    wanted = entry(server.address("a.bin"))
    path = fetch_one(wanted, tmp_path, log).path
    path.write_bytes(CONTENT[:-1] + b"?")
    assert fetch_one(wanted, tmp_path, log).path.read_bytes() == CONTENT
    assert "damaged in the cache" in log


def test_without_a_recorded_digest_later_downloads_must_match_the_first(
    server: FileServer, tmp_path: Path, log: Log
) -> None:
    served = server.serve("a.bin", CONTENT)
    wanted = entry(server.address("a.bin"))
    piece = fetch_one(wanted, tmp_path, log)
    assert piece.recorded is None
    assert "digest not recorded" in log
    piece.path.unlink()
    served.content = OTHER
    with pytest.raises(LockstepError, match="differs from the first download") as caught:
        fetch_one(wanted, tmp_path, log)
    assert "a.bin.json" in caught.value.remedy
    assert names(tmp_path) == {"a.bin.json"}


def test_a_server_name_that_cannot_be_resolved_is_reported(tmp_path: Path, log: Log) -> None:
    with pytest.raises(LockstepError, match="the name of the server cannot be resolved"):
        fetch_one(entry("http://nowhere.invalid/a.bin"), tmp_path, log, tries=1)


def test_a_folder_is_used_without_network(tmp_path: Path, log: Log) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    address = f"http://127.0.0.1:{free_port()}/a.bin"
    piece = fetch_one(entry(known(address)), tmp_path / "cache", log, folder=tmp_path)
    assert piece.path == tmp_path / "a.bin"
    assert not (tmp_path / "cache").exists()


def test_a_folder_may_hold_a_piece_under_another_name(tmp_path: Path, log: Log) -> None:
    (tmp_path / "plain.bin").write_bytes(CONTENT)
    wanted = entry("http://127.0.0.1:1/a.bin", also=("plain.bin",))
    assert fetch_one(wanted, tmp_path, log, folder=tmp_path).path == tmp_path / "plain.bin"


def test_the_names_of_a_missing_piece_are_listed(tmp_path: Path, log: Log) -> None:
    with pytest.raises(LockstepError, match=r"does not hold dull_\*\.deb or dull-1\.0\.tgz or plain\.bin"):
        fetch_one(entry("apt:dull", "npm:dull@1.0", also=("plain.bin",)), tmp_path, log, folder=tmp_path)


def test_a_wrong_file_in_a_folder_is_refused(tmp_path: Path, log: Log) -> None:
    (tmp_path / "a.bin").write_bytes(OTHER)
    with pytest.raises(LockstepError, match="has the digest sha256:"):
        fetch_one(entry(known("http://127.0.0.1:1/a.bin")), tmp_path, log, folder=tmp_path)


@pytest.mark.parametrize("address", ["apt:lockstep-no-such-package", "npm:lockstep-no-such-package@0"])
def test_a_package_manager_that_is_missing_is_named(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LockstepError, match="is not installed") as caught:
        fetch_one(entry(address), tmp_path, log)
    assert "--from" in caught.value.remedy


def test_a_package_manager_that_fails_is_quoted(tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "apt-get"
    program.write_text("#!/bin/sh\necho 'E: Unable to locate package dull' >&2\nexit 100\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(LockstepError, match="failed: Unable to locate package dull") as caught:
        fetch_one(entry("apt:dull"), tmp_path, log)
    assert "apt-get update" in caught.value.remedy


def test_test_sets_come_with_the_address_and_digest_of_sacrebleu() -> None:
    from sacrebleu.dataset import DATASETS

    resolved, theirs = resolve(Source(address="sacrebleu:wmt14/full")), DATASETS["wmt14/full"]
    assert [resolved.address] == theirs.data
    assert [resolved.digest] == [f"md5:{digest}" for digest in theirs.md5 or ()]
    with pytest.raises(LockstepError, match="no data set 'wmt1'"):
        resolve(Source(address="sacrebleu:wmt1"))


def text(count: int, language: str) -> bytes:
    return gzip.compress("".join(f"{language} {random.Random(n).random()}\n" for n in range(count)).encode())


def test_a_killed_download_is_resumed(server: FileServer, tmp_path: Path) -> None:
    """The command, killed and started again, gives the same bytes as one that was not interrupted."""
    pieces = {
        f"{name}.{language}.gz": text(20_000, language) for name in ("train", "valid") for language in ("en", "de")
    }
    for name, content in pieces.items():
        server.serve(name, content)
    slow = server.files["/valid.en.gz"]
    catalog = tmp_path / "own.yaml"
    catalog.write_text(yaml.safe_dump({"own": own_entry(server, pieces)}))
    words = ("data", "get", "own", "--catalog", catalog, "--cache", tmp_path / "cache", "--to", tmp_path / "killed")

    slow.pause_seconds = 0.05
    process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    part = tmp_path / "cache" / "own" / "valid.en" / "valid.en.gz.part"
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size >= len(slow.content) // 3):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "no download within a minute"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    have = part.stat().st_size
    assert 0 < have < len(slow.content)
    assert not (tmp_path / "killed").exists()

    slow.pause_seconds = 0
    again = lockstep(*words)
    assert "train.en.gz: already there" in again.stderr
    assert "train.de.gz: already there" in again.stderr
    assert f"valid.en.gz: resuming at {have / 1e6:.1f} MB" in again.stderr
    assert server.ranges("valid.en.gz") == ["", f"bytes={have}-"]
    assert server.ranges("train.en.gz") == [""]

    lockstep(*words[:-3], tmp_path / "cache2", "--to", tmp_path / "alone")
    files = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert {"train.en", "train.de", "validation.en", "validation.de"} <= set(files)
    for name in files:
        if name not in ("own.yaml", "source.json"):  # these name the folder
            assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


def own_entry(server: FileServer, pieces: dict[str, bytes]) -> dict[str, object]:
    return {
        "title": "a test",
        "recipe": "pairs",
        "languages": ["en", "de"],
        "licence": "free",
        "citation": "none",
        "splits": "none",
        "counts": {"train": 20_000, "validation": 20_000},
        "pieces": {
            name.removesuffix(".gz"): {
                "sources": [{"address": server.address(name), "digest": f"md5:{md5(content).hexdigest()}"}]
            }
            for name, content in pieces.items()
        },
        "sets": {"train": [{"pieces": ["train.en", "train.de"]}], "validation": [{"pieces": ["valid.en", "valid.de"]}]},
    }
