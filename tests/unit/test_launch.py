"""What a person is told when workers fail, from what torch's agent knows of them."""

import json
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from lockstep.errors import LockstepError, PortTaken
from lockstep.launch import local
from lockstep.launch.joined import joined
from lockstep.launch.local import _root_cause
from lockstep.train.worker import LostPeer, tell_launcher


def told(path: Path, monkeypatch: pytest.MonkeyPatch, error: LockstepError) -> str:
    """An error file as a worker writes it."""
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))
    tell_launcher(error)
    return str(path)


def failed(**failures: ProcessFailure) -> ChildFailedError:
    return ChildFailedError("worker", {int(name[1:]): failure for name, failure in failures.items()})


def test_a_workers_own_sentence_reaches_the_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = told(tmp_path / "e", monkeypatch, LockstepError("The disk is full.", "Make room.", code=2))
    cause = _root_cause(failed(r0=ProcessFailure(0, 11, 2, file)), workers=2)
    assert (cause.message, cause.remedy, cause.code) == ("The disk is full.", "Make room.", 2)


def test_what_a_worker_says_of_itself_comes_before_lost_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = told(tmp_path / "lost", monkeypatch, LostPeer(0, "Connection closed by peer"))
    own = told(tmp_path / "own", monkeypatch, LockstepError("No whole checkpoint."))
    cause = _root_cause(failed(r0=ProcessFailure(0, 11, 1, lost), r1=ProcessFailure(1, 12, 1, own)), workers=2)
    assert cause.message == "No whole checkpoint."


def test_a_killed_worker_is_named_with_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = told(tmp_path / "lost", monkeypatch, LostPeer(0, "Connection closed by peer"))
    cause = _root_cause(failed(r0=ProcessFailure(0, 11, 1, lost), r1=ProcessFailure(1, 12, -9, "")), workers=2)
    assert cause.message == "Worker 1 (process 12) was killed by SIGKILL (out of memory?)."
    assert "last checkpoint" in cause.remedy


def test_a_port_that_was_taken_meanwhile_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = told(tmp_path / "e", monkeypatch, PortTaken("Port 127.0.0.1:1 is already in use.", "Set another.", code=2))
    lost = told(tmp_path / "lost", monkeypatch, LostPeer(1, "Connection closed by peer"))
    cause = _root_cause(failed(r1=ProcessFailure(1, 12, 1, lost), r0=ProcessFailure(0, 11, 2, file)), workers=2)
    assert isinstance(cause, PortTaken)


def test_a_port_that_was_taken_meanwhile_is_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []

    def once(command: list[str], workers: int, servers: int, port: int, stop_seconds: int) -> None:
        ports.append(port)
        if len(ports) == 1:
            raise PortTaken("Port 1 is already in use.")

    monkeypatch.setattr(local, "_launch", once)
    local.launch(["true"], 2)
    assert len(ports) == 2


def test_the_worker_that_failed_first_is_blamed(tmp_path: Path) -> None:
    cause = _root_cause(failed(r1=ProcessFailure(1, 12, 1, ""), r0=ProcessFailure(0, 11, -9, "")), workers=2)
    assert cause.message.startswith("Worker 1 (process 12) ended with exit code 1")


def test_the_error_file_is_plain_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = told(tmp_path / "e", monkeypatch, LockstepError("A.", "B."))
    assert json.loads(json.loads(Path(file).read_text())["message"])["message"] == "A."


def test_mpirun_gives_rank_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # so that what `joined` sets is undone
        monkeypatch.delenv(name)
    assert not joined()
    for name, value in {"RANK": "3", "SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    with pytest.raises(LockstepError, match="MASTER_ADDR"):
        joined()
    monkeypatch.setenv("MASTER_ADDR", "node1")
    assert joined()
