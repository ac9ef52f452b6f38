"""The service of a run folder: what members of the job can do with it, and what strangers cannot."""

import hashlib
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lockstep.files import read_json, write_json
from lockstep.run import outbox
from lockstep.run.checkpoint import find_newest_whole, read_checkpoint
from lockstep.run.checkpoint_part import CheckpointPart
from lockstep.run.directory import RunDirectory
from lockstep.run.outbox import OutboxMember
from lockstep.run.retention import keep_best_and_last
from lockstep.run_service.run_client import PartSender, RunClient, ServiceAddress, fetch_file
from lockstep.run_service.service import MOST_STRANGERS, ServiceProcess
from lockstep.run_service.shipper import RemoteStreams, Shipper, send_earlier
from lockstep.run_service.signed_connection import GREETING, MOST_HEADER_BYTES, NONCE_BYTES
from lockstep.run_service.streams import Streams
from lockstep.train.checkpoint_parts import SaveFailed, complete, write_part

LOCAL = "127.0.0.1"
FILE = "journal/worker-0001.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.journal.mkdir(parents=True)
    return run


@pytest.fixture
def process(run: RunDirectory) -> Iterator[tuple[ServiceProcess, ServiceAddress]]:
    key = secrets.token_bytes(32)
    process = ServiceProcess(run, LOCAL, key)
    yield process, ServiceAddress("h1", LOCAL, process.port, key.hex(), 10.0)
    process.close()


@pytest.fixture
def service(process: tuple[ServiceProcess, ServiceAddress]) -> ServiceAddress:
    return process[1]


def list_tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_parts_of_two_hosts_make_a_checkpoint(run: RunDirectory, service: ServiceAddress, tmp_path: Path) -> None:
    first, second = (CheckpointPart(run.checkpoints, 5, "1-1", rank, workers=2) for rank in (0, 1))
    values = os.urandom(9_000_000)  # more than one frame
    name = "state/worker-0001.safetensors"
    write_part(second, [(name, [values, b"more"])], service=service)
    write_part(first, [("state/worker-0000.safetensors", [b"values"])])
    complete(first, {"step": 5, "score": None}, {}, keep_best_and_last(1, 1, True))
    saved, skipped = find_newest_whole(run.checkpoints)
    assert saved is not None
    assert not skipped
    assert (saved.path / name).read_bytes() == values + b"more"
    with RunClient(service) as client:
        fetch_file(client, saved.path.name, name, saved.manifest["files"][name], tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == values + b"more"
        (saved.path / name).write_bytes(values[::-1] + b"more")
        with pytest.raises(OSError, match="did not arrive as h1 has it"):
            fetch_file(client, saved.path.name, name, saved.manifest["files"][name], tmp_path / "copy")


def test_a_sender_that_dies_leaves_no_file_and_no_marker(run: RunDirectory, service: ServiceAddress) -> None:
    part = CheckpointPart(run.checkpoints, 5, "1-1", rank=1, workers=2)
    sender = PartSender(service, part)
    sender._client.ask("create", **sender._facts)
    sender._client.ask("write", b"half")
    assert (part.aside / "state/worker-0001.safetensors").read_bytes() == b"half"
    sender.close()
    while (part.aside / "state/worker-0001.safetensors").exists():
        pass  # the test would run out of time
    assert not part.find_marker(1).exists()


def test_a_failure_over_there_is_known_to_all(
    process: tuple[ServiceProcess, ServiceAddress], run: RunDirectory
) -> None:
    part = CheckpointPart(run.checkpoints, 5, "1-1", rank=1, workers=2)
    run.checkpoints.write_text("a file in the way")
    with pytest.raises(SaveFailed, match=r"Not a directory \(on h1\)"):
        write_part(part, [("state/worker-0001.safetensors", [b"x"])], service=process[1])
    process[0].close()
    with pytest.raises(SaveFailed, match=r"the run folder on h1 \(127\.0\.0\.1, port \d+\) cannot be reached"):
        write_part(part, [("state/worker-0001.safetensors", [b"x"])], service=process[1])


BAD_REQUESTS: list[dict[str, object]] = [
    {"do": "append", "file": "journal/../../escape.jsonl", "stream": "a", "at": 0},
    {"do": "append", "file": "/etc/passwd", "stream": "a", "at": 0},
    {"do": "append", "file": "config.yaml", "stream": "a", "at": 0},
    {"do": "append", "file": FILE, "stream": "../a", "at": 0},
    {"do": "append", "file": FILE, "stream": "a", "at": -1},
    {"do": "append", "file": FILE, "stream": "a", "at": True},
    {"do": "create", "step": 1, "token": "../../x", "rank": 1},
    {"do": "create", "step": 10**30, "token": "x", "rank": 1},
    {"do": "create", "step": 1, "token": "x", "rank": "1"},
    {"do": "mark", "step": 1, "token": "x", "rank": 1, "facts": {"files": {}, "more": 1}},
    {"do": "mark", "step": 1, "token": "x", "rank": 1, "facts": []},
    {"do": "read", "checkpoint": "..", "file": "config.yaml", "at": 0},
    {"do": "read", "checkpoint": "step-00000001", "file": "../config.yaml", "at": 0},
    {"do": "write"},
    {"do": "finish", "facts": {}},
    {"do": "close"},
    {"do": ["append"]},
    {},
]


def test_even_a_member_can_do_nothing_else(run: RunDirectory, service: ServiceAddress) -> None:
    before = list_tree(run.path.parent)
    with RunClient(service) as client:
        for request in BAD_REQUESTS:
            facts = {name: value for name, value in request.items() if name != "do"}
            with pytest.raises(OSError, match=r"refused|not there any more"):
                client.ask(request.get("do"), b"text\n", **facts)  # type: ignore[arg-type]
        assert client.ask("count", file=FILE, stream="a")[0]["count"] == 0, "the connection still works"
    assert list_tree(run.path.parent) == before


def connect(service: ServiceAddress) -> socket.socket:
    return socket.create_connection((service.address, service.port), 10)


def is_closed(end: socket.socket) -> bool:
    """Reads to the end; whether the other one ends the connection."""
    try:
        while end.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_stranger_is_sent_away(run: RunDirectory, service: ServiceAddress) -> None:
    before = list_tree(run.path)
    for text in (b"", b"GET / HTTP/1.1\r\n\r\n" * 20, os.urandom(5000), b"\xff" * 64):
        with connect(service) as end:
            end.sendall(text)
            end.shutdown(socket.SHUT_WR)
            assert is_closed(end)
    assert list_tree(run.path) == before
    with pytest.raises(OSError, match="cannot be reached"):
        RunClient(ServiceAddress("h1", service.address, service.port, secrets.token_hex(32), 5.0), 0.0)
    RunClient(service).close()


def test_a_client_sends_nothing_to_a_stranger_that_takes_the_port() -> None:
    with socket.create_server((LOCAL, 0)) as listener:
        heard: list[bytes] = []

        def pretend() -> None:
            end, _ = listener.accept()
            with end:
                end.sendall(GREETING + bytes(NONCE_BYTES))
                heard.append(end.recv(4096))
                end.sendall(bytes(32))
                heard.append(end.recv(4096))

        thread = threading.Thread(target=pretend)
        thread.start()
        address = ServiceAddress("h1", LOCAL, listener.getsockname()[1], "00" * 32, 5.0)
        with pytest.raises(OSError, match="does not know the key of this job"):
            RunClient(address, 0.0)
        thread.join()
    assert len(heard[0]) == 64
    assert heard[1] == b""


def test_lengths_are_not_believed(process: tuple[ServiceProcess, ServiceAddress], run: RunDirectory) -> None:
    """Of a member that went mad: nothing is allocated for what it announces, and the others are served."""
    server, service = process
    resident = psutil.Process(server._process.pid).memory_info().rss
    for head in (struct.pack("<I", 2**32 - 1), struct.pack("<I", MOST_HEADER_BYTES + 1), struct.pack("<I", 0)):
        client = RunClient(service)
        client._connection._socket.sendall(head + bytes(32))
        assert is_closed(client._connection._socket)
        client.close()
    client = RunClient(service)
    text = json.dumps({"do": "write", "body": 2**40}).encode()
    signature = client._connection._sign("client", 0, text)
    client._connection._socket.sendall(struct.pack("<I", len(text)) + signature + text)
    assert is_closed(client._connection._socket)
    client.close()
    assert psutil.Process(server._process.pid).memory_info().rss - resident < 20e6
    RunClient(service).close()


def test_a_frame_cannot_be_repeated(service: ServiceAddress, run: RunDirectory) -> None:
    client = RunClient(service)
    text = json.dumps({"do": "append", "file": FILE, "stream": "a", "at": 0, "body": 5}).encode()
    frame = struct.pack("<I", len(text)) + client._connection._sign("client", 0, text) + text + b"line\n"
    client._connection._socket.sendall(frame)
    client._connection.receive()
    client._connection._socket.sendall(frame)
    assert is_closed(client._connection._socket)
    client.close()
    assert (run.path / FILE).read_bytes() == b"line\n"


def test_many_silent_strangers_do_not_keep_a_member_out(service: ServiceAddress) -> None:
    strangers = [connect(service) for _ in range(MOST_STRANGERS + 20)]
    RunClient(service, 20.0).close()  # when the first ones have been silent for too long
    for stranger in strangers:
        stranger.close()


def test_neither_environment_nor_command_line_of_the_service_has_the_key(
    process: tuple[ServiceProcess, ServiceAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = psutil.Process(process[0]._process.pid)
    shown = " ".join([*seen.cmdline(), *seen.environ().values()])
    assert process[1].key not in shown


def test_the_service_ends_with_its_worker(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom lockstep.run.directory import RunDirectory\n"
        "from lockstep.run_service.service import ServiceProcess\n"
        "service = ServiceProcess(RunDirectory(Path(sys.argv[1])), '127.0.0.1', bytes(32))\n"
        "print(service._process.pid, flush=True)\ntime.sleep(600)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    service = psutil.Process(int(worker.stdout.readline()))
    worker.kill()
    worker.communicate()
    psutil.wait_procs([service], timeout=20)
    assert not service.is_running() or service.status() == psutil.STATUS_ZOMBIE


def test_the_service_needs_no_torch() -> None:
    program = (
        "import sys, lockstep.run_service.service, lockstep.run_service.shipper\n"
        "print([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def make_lines(attempt: int, first: int, count: int) -> str:
    return "".join(json.dumps({"kind": "x", "attempt": attempt, "n": n}) + "\n" for n in range(first, first + count))


def test_lines_arrive_while_they_are_written_and_half_a_line_does_not(
    run: RunDirectory, service: ServiceAddress, tmp_path: Path
) -> None:
    own = outbox.join_run(tmp_path / "other", OutboxMember("run", "h1", "launch"))
    shipper = Shipper(service, own, [FILE], sends_others=True)
    with (own / FILE).open("a") as file:
        file.write(make_lines(1, 0, 3) + '{"half')
    (own / "journal" / "monitor-h2.jsonl").write_text(make_lines(1, 0, 1))
    (own / "journal" / "monitor-h1.jsonl").write_text(make_lines(1, 0, 1))  # a host with the name of the first one
    while not (run.path / FILE).exists() or not (run.path / "journal" / "monitor-h2.jsonl").exists():
        pass  # the test would run out of time
    shipper.close(is_done=False)
    assert (run.path / FILE).read_text() == make_lines(1, 0, 3)
    assert {path.name for path in run.journal.iterdir()} == {
        "worker-0001.jsonl",
        "monitor-h2.jsonl",
        "monitor-h1-2.jsonl",
    }


def test_what_a_dead_launch_has_left_comes_in_once_and_in_its_place(
    run: RunDirectory, service: ServiceAddress, tmp_path: Path
) -> None:
    """Launch 1 has sent two of five lines; launch 2 went without this host; launch 3 has it again."""
    folder = tmp_path / "other"
    with RunClient(service) as client:
        streams = RemoteStreams(client)
        first = outbox.join_run(folder, OutboxMember("run", "h1", "launch-1"))
        (first / FILE).write_text(make_lines(1, 0, 5))
        streams.append(FILE, "launch-1", 0, make_lines(1, 0, 2).encode())
        streams.append(FILE, "launch-1", 0, make_lines(1, 0, 2).encode())  # again: nobody had heard the answer
    local = Streams(run)
    local.end_all()
    (run.path / FILE).open("a").write(make_lines(2, 0, 3))
    outbox.join_run(folder, OutboxMember("run", "h1", "launch-3"))
    send_earlier(folder, "launch-3", local)
    assert (run.path / FILE).read_text() == make_lines(1, 0, 5) + make_lines(2, 0, 3)
    assert [path.name for path in (folder / outbox.NAME).iterdir() if path.is_dir()] == ["launch-3"]
    local.open(FILE, "launch-3")
    local.append(FILE, "launch-3", 0, b"new\n")
    assert (run.path / FILE).read_text().endswith(make_lines(2, 0, 3) + "new\n")
    assert [segment["stream"] for segment in read_json(run.streams)["files"][FILE]] == ["launch-3"]


def test_what_a_monitor_has_sent_comes_in_once_when_its_host_becomes_the_first(
    run: RunDirectory, tmp_path: Path
) -> None:
    own = outbox.join_run(run.path, OutboxMember("run", "h1", "launch-1"))
    monitor = "journal/monitor-h2.jsonl"
    (own / monitor).write_text(make_lines(1, 0, 3))
    streams = Streams(run)
    streams.append(monitor, "launch-1", 0, make_lines(1, 0, 2).encode())
    streams.end_all()
    send_earlier(run.path, "", streams)
    outbox.leave(run.path)
    assert (run.path / monitor).read_text() == make_lines(1, 0, 3)
    assert list_tree(run.path) == ["journal", monitor, "streams.json"]


@pytest.mark.parametrize("has_happened", [False, True])
def test_an_insertion_that_was_interrupted_happens_once(run: RunDirectory, has_happened: bool) -> None:
    (run.path / FILE).write_text("a1\nb1\n")
    files = {
        FILE: [
            {"stream": "a", "begin": 0, "end": 3},
            {"stream": "b", "begin": 3, "end": 6},
        ]
    }
    insertion = {"file": FILE, "stream": "a", "at": 3, "size_before": 6, "bytes": 3}
    write_json(run.streams, {"files": files, "insertion": insertion})
    if has_happened:
        (run.path / FILE).write_text("a1\na2\nb1\n")
    streams = Streams(run)
    streams.insert(FILE, "a", streams.count(FILE, "a"), b"a2\n" if not has_happened else b"")
    streams.insert(FILE, "b", streams.count(FILE, "b"), b"b2\n")
    assert (run.path / FILE).read_text() == "a1\na2\nb1\nb2\n"
    assert (streams.count(FILE, "a"), streams.count(FILE, "b")) == (6, 6)


def test_an_outbox_that_is_in_use_or_of_another_run_is_not_sent(run: RunDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    own = outbox.join_run(folder, OutboxMember("run", "h1", "launch-1"))
    (own / FILE).write_text(make_lines(1, 0, 1))
    held = outbox.hold(own)
    send_earlier(folder, "launch-2", Streams(run))
    assert (own / FILE).exists()
    held.close()
    outbox.join_run(folder, OutboxMember("another run", "h1", "launch-2"))
    send_earlier(folder, "launch-2", Streams(run))
    assert not (run.path / FILE).exists()
    (aside,) = folder.glob(f"{outbox.NAME}.aside-*")
    assert (aside / "launch-1" / FILE).exists()


def test_the_marker_has_the_digests_that_arrived(run: RunDirectory, service: ServiceAddress) -> None:
    part = CheckpointPart(run.checkpoints, 5, "1-1", rank=1, workers=2)
    write_part(part, [("state/worker-0001.safetensors", [b"abc", b"def"])], service=service)
    facts = json.loads(part.find_marker(1).read_text())["files"]["state/worker-0001.safetensors"]
    assert facts == {"bytes": 6, "sha256": hashlib.sha256(b"abcdef").hexdigest()}
    assert read_checkpoint(part.aside) is None
