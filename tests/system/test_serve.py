"""`lockstep serve` as a real process: what it prints, what it refuses, and that bad clients do not harm it."""

import asyncio
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI
from serve import RunningServer, run_clients, run_server

from conftest import WORDS, command, lockstep

LONG_TEXT = "Ba de ga ki lo mu. " * 200


@pytest.fixture(scope="module")
def server(export_folder: Path, back_folder: Path) -> Iterator[RunningServer]:
    with run_server(export_folder, back_folder, "--body-timeout", 1) as running:
        yield running


def connect(server: RunningServer) -> socket.socket:
    host, port = server.address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def read_answer(client: socket.socket) -> tuple[int, bytes]:
    """Reads until the server closes the connection. Returns the status, or 0 without an answer, and the body."""
    data = b""
    while part := client.recv(65536):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


def make_head(length: int, path: str = "/translate") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: here", "Connection: close", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def translate(server: RunningServer, text: str = "ba de") -> str:
    fields = {"q": text, "source": "en", "target": "de"}
    response = httpx.post(f"{server.address}/translate", json=fields, timeout=60)
    assert response.status_code == 200, response.text
    return str(response.json()["translatedText"])


def test_models_and_address_are_printed(export_folder: Path) -> None:
    words = command("serve", export_folder, "--port", 0)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert first.startswith("en-de  ")
    assert " MB, loaded in " in first
    assert second.startswith("Serving at http://127.0.0.1:")
    assert (process.returncode, errors) == (0, "")


def test_a_client_of_libretranslate_works(server: RunningServer) -> None:
    client = LibreTranslateAPI(server.address)
    assert client.translate("ba de ga", "en", "de") == translate(server, "ba de ga")
    assert {one["code"]: one["targets"] for one in client.languages()} == {"en": ["de"], "de": ["en"]}
    assert client.detect("The dog is sleeping in the garden.")[0]["language"] == "en"


def test_lists_and_html_are_translated(server: RunningServer) -> None:
    fields = {"q": ["<p>ba <b>de</b></p>", ""], "source": "en", "target": "de", "format": "html", "alternatives": 2}
    answer = httpx.post(f"{server.address}/translate", json=fields, timeout=60).json()
    assert answer["translatedText"] == [f"<p>{translate(server, 'ba')} <b>{translate(server, 'de')}</b></p>", ""]
    assert [len(texts) for texts in answer["alternatives"]] == [2, 0]


def test_line_breaks_of_a_long_text_stay(server: RunningServer) -> None:
    text = "\r\n Ba de. Ki lo!\n\n" * 30
    translation = translate(server, text)
    assert translation.count("\r\n ") == 30
    assert translation.count("\n\n") == 30


def test_no_torch_is_loaded_for_an_export(server: RunningServer) -> None:
    translate(server)
    assert "libtorch" not in Path(f"/proc/{server.process.pid}/maps").read_text()


def test_many_clients_are_served_without_an_error(server: RunningServer) -> None:
    sentences = [f"{first} {second}" for first in WORDS for second in WORDS]
    work = run_clients(server.address, 64, 3.0, sentences, {"source": "en", "target": "de"})
    sample = asyncio.run(work)
    assert sample["errors"] == []
    assert len(sample["latencies"]) > 64


def test_a_slow_body_ends_in_408_and_holds_up_nobody(server: RunningServer) -> None:
    with connect(server) as slow:
        slow.sendall(make_head(1000) + b'{"q": ')
        assert translate(server)
        status, body = read_answer(slow)
    assert (status, json.loads(body)) == (408, {"error": "The body did not arrive within 1 seconds."})


def test_slow_and_silent_connections_are_closed(server: RunningServer) -> None:
    with connect(server) as slow, connect(server) as silent:
        slow.sendall(b"POST /translate HTTP/1.1\r\nHost: he")
        status, body = read_answer(slow)
        assert (status, list(json.loads(body))) == (408, ["error"])
        assert read_answer(silent) == (0, b"")


def test_a_huge_body_ends_in_413(server: RunningServer) -> None:
    response = httpx.post(f"{server.address}/translate", content=b"x" * 30_000_000, timeout=60)
    assert (response.status_code, list(response.json())) == (413, ["error"])
    chunks = (b"x" * 100_000 for _ in range(100))
    assert httpx.post(f"{server.address}/translate", content=chunks, timeout=60).status_code == 413
    with connect(server) as client:
        client.sendall(make_head(30_000_000) + b"x" * 30_000_000)
        assert read_answer(client)[0] == 413
    assert translate(server)


@pytest.mark.parametrize(
    "request_line",
    [b"nonsense\r\n\r\n", b"\x00\xff\xfe\r\n\r\n", b"GET / HTTP/1.1\r\nBad Header\r\n\r\n", b"A" * 200_000],
)
def test_broken_http_is_refused(server: RunningServer, request_line: bytes) -> None:
    with connect(server) as client:
        client.sendall(request_line)
        status, body = read_answer(client)
    assert (status, json.loads(body)) == (400, {"error": "The request is not valid HTTP."})
    assert translate(server)


def test_a_client_that_goes_away_leaves_no_work_behind(server: RunningServer) -> None:
    body = json.dumps({"q": LONG_TEXT, "source": "en", "target": "de"}).encode()
    for _ in range(20):
        with connect(server) as client:
            client.sendall(make_head(len(body)) + body)
    assert translate(server)


def test_a_signal_lets_requests_finish_and_refuses_new_ones(export_folder: Path) -> None:
    body = json.dumps({"q": "ba de", "source": "en", "target": "de"}).encode()
    with run_server(export_folder) as running:
        with connect(running) as client:
            client.sendall(make_head(len(body)) + body[:5])
            translate(running)  # so the request above has begun
            running.process.terminate()
            deadline = time.monotonic() + 30
            while is_open(running):
                assert time.monotonic() < deadline, "new connections are still accepted"
            client.sendall(body[5:])
            status, answer = read_answer(client)
        assert status == 200
        assert json.loads(answer)["translatedText"]
        assert running.process.wait(timeout=60) == 0


def is_open(server: RunningServer) -> bool:
    try:
        with connect(server) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            return read_answer(client)[0] == 200
    except OSError:
        return False


def test_keys_are_required_and_never_printed(export_folder: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# of the tests\nfirst-secret\n\nsecond-secret\n")
    fields = {"q": "ba", "source": "en", "target": "de"}
    with run_server(export_folder, "--host", "0.0.0.0", "--api-key-file", keys, "--log") as running:
        address = running.address.replace("0.0.0.0", "127.0.0.1")
        assert httpx.post(f"{address}/translate", json=fields).status_code == 403
        wrong = httpx.post(f"{address}/translate", json=fields | {"api_key": "wrong-secret"})
        assert (wrong.status_code, wrong.json()) == (403, {"error": "The API key is not valid."})
        header = {"Authorization": "Bearer second-secret"}
        assert httpx.post(f"{address}/translate", json=fields, headers=header).status_code == 200
        assert LibreTranslateAPI(address, "first-secret").translate("ba", "en", "de")
        running.process.terminate()
        output, errors = running.process.communicate(timeout=60)
    assert [line.split()[:3] for line in output.splitlines()] == [
        ["POST", "/translate", status] for status in ("403", "403", "200", "200")
    ]
    assert "secret" not in output + errors


def test_a_run_is_served_without_alignment(trained: Path) -> None:
    with run_server(trained) as running:
        assert translate(running)
        fields = {"text": "ba de", "source": "en", "target": "de", "alternatives": 2}
        (sentence,) = httpx.post(f"{running.address}/page/translate", json=fields, timeout=60).json()["sentences"]
        assert sentence["words"] is None
        assert len(sentence["alternatives"]) == 2
        assert httpx.get(f"{running.address}/page/settings").json()["directions"][0]["has_alignment"] is False


def test_a_taken_port_is_named(server: RunningServer, export_folder: Path) -> None:
    port = server.address.rpartition(":")[2]
    error = lockstep("serve", export_folder, "--port", port, code=2).stderr
    assert error.startswith(f"Error: Port {port} of 127.0.0.1 cannot be used: Address already in use.\n")


def test_mistakes_end_in_one_sentence(export_folder: Path, tmp_path: Path) -> None:
    error = lockstep("serve", export_folder, "--host", "0.0.0.0", code=2).stderr
    assert error.startswith("Error: Other machines can reach 0.0.0.0, and no API key is required.\n")
    error = lockstep("serve", export_folder, export_folder, "--port", 0, code=2).stderr
    assert error.startswith(f"Error: {export_folder} and {export_folder} both translate en-de.\n")
    error = lockstep("serve", export_folder, "--api-key-file", tmp_path / "none", code=2).stderr
    assert error.startswith(f"Error: {tmp_path / 'none'} cannot be read: No such file or directory.\n")
    (tmp_path / "empty").write_text("# nothing\n")
    error = lockstep("serve", export_folder, "--api-key-file", tmp_path / "empty", code=2).stderr
    assert error.startswith(f"Error: {tmp_path / 'empty'} has no key.\n")
    error = lockstep("serve", export_folder, "--host", "nowhere.invalid", code=2).stderr
    assert error.startswith("Error: The host 'nowhere.invalid' has no address.\n")
