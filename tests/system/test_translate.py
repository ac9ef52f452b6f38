"""`lockstep translate` with a sentence, a file, a pipe, and text that a model cannot translate at once."""

import json
import os
import pty
import subprocess
import tarfile
from pathlib import Path

import pytest

from conftest import command, lockstep

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "run-0.1.0.tar.gz"
SENTENCE = "Ba de ga ki lo mu."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "run"


def translate(run: Path, text: bytes, *words: object) -> "subprocess.CompletedProcess[bytes]":
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command("translate", run, *words), input=text, capture_output=True, env=environment, check=False
    )


def test_long_lines_keep_their_place_and_give_one_warning(run: Path) -> None:
    long = " ".join([SENTENCE] * 20)
    lines = ["ba de", "", long, "x" * 200_000, "ga ki\r", *[long] * 8, "   ", "lo"]
    shown = translate(run, "\n".join(lines).encode(), "--json")
    results = [json.loads(line) for line in shown.stdout.decode().splitlines()]
    assert [result["source"] for result in results] == [line.rstrip("\r") for line in lines]
    translations = [result["translation"] for result in results]
    assert [i for i, text in enumerate(translations) if not text] == [1, 13]
    alone = translate(run, SENTENCE.encode()).stdout.decode().strip()
    assert set(translations[2:3] + translations[5:13]) == {" ".join([alone] * 20)}
    assert shown.stderr.decode().splitlines() == [
        "9 lines (3, 6, 7, 8, 9, ...) were longer than the model translates at once (27 pieces) and were translated "
        "sentence by sentence.",
        "Line 4: 1 word was too long to translate and was copied.",
    ]


def test_a_sentence_can_be_given_as_words(run: Path, tmp_path: Path) -> None:
    expected = translate(run, b"ba de ga\n").stdout.decode()
    assert lockstep("translate", run, "ba de", "ga").stdout == expected
    text = tmp_path / "text.en"
    text.write_text("ba\n")
    error = lockstep("translate", run, text, code=2).stderr
    assert error == f"Error: {text} is a file.\n       To translate its lines: --input {text}\n"
    assert "Give one of them" in lockstep("translate", run, "ba", "-i", text, code=2).stderr


def test_text_that_is_not_utf8_is_named_with_its_line(run: Path) -> None:
    shown = translate(run, b"ba\nde\n\xff\xfe ga\n")
    assert shown.returncode == 1
    assert shown.stderr.decode().startswith("Error: The input is not UTF-8 text: see line 3.\n")


def test_a_file_is_translated_with_a_progress_bar(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(f"{SENTENCE}\n" * 40)
    own, stderr = pty.openpty()
    words = command("translate", run, "-i", tmp_path / "in", "-o", tmp_path / "out")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(words, stderr=stderr, env=environment) as process:
        os.close(stderr)
        shown = b""
        try:
            while part := os.read(own, 4096):
                shown += part
        except OSError:  # the program has ended
            pass
        assert process.wait() == 0
    os.close(own)
    assert b"lines/s" in shown
    assert len((tmp_path / "out").read_text().splitlines()) == 40


def test_a_person_who_types_a_long_line_is_warned_at_once(run: Path) -> None:
    own, stdin = pty.openpty()
    pipe = subprocess.PIPE
    with subprocess.Popen(command("translate", run), stdin=stdin, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"Type a sentence")
        os.write(own, f"{SENTENCE} {SENTENCE} {SENTENCE}\n".encode())
        assert process.stdout.readline().strip()
        assert process.stderr.readline().startswith(b"Line 1 was longer than the model translates at once")
        os.write(own, b"\x04")
        assert process.wait() == 0
    os.close(own)
    os.close(stdin)


def test_bad_input_leaves_an_existing_output_alone(run: Path, tmp_path: Path) -> None:
    bad, output = tmp_path / "bad.en", tmp_path / "out.de"
    bad.write_bytes(b"ba de\n" * 600 + b"\xff\xfe\n")
    output.write_text("precious\n")
    error = lockstep("translate", run, "-i", bad, "-o", output, code=1).stderr
    assert "is not UTF-8 text: see line 601." in error
    assert output.read_text() == "precious\n"
    assert f"The lines before it are in {output}.partial." in error
    assert len((tmp_path / "out.de.partial").read_text().splitlines()) == 600
    error = lockstep("translate", run, "-i", tmp_path / "missing.en", "-o", output, code=2).stderr
    assert error.startswith(f"Error: {tmp_path / 'missing.en'} does not exist.\n")
    good = tmp_path / "good.en"
    good.write_text("ba de\n")
    lockstep("translate", run, "-i", good, "-o", output)
    assert len(output.read_text().splitlines()) == 1
    assert not (tmp_path / "out.de.partial").exists()


def test_control_characters_reach_a_file_and_a_pipe_but_no_terminal(run: Path, tmp_path: Path) -> None:
    """A word that is too long is copied, whatever it contains."""
    word = "x\x1b]0;y\x07\x9b\u202ez" * 40
    assert translate(run, f"{word}\n".encode()).stdout.decode() == f"{word}\n"
    lockstep("translate", run, word, "-o", tmp_path / "text")
    assert (tmp_path / "text").read_text(encoding="utf-8") == f"{word}\n"
    ours, theirs = pty.openpty()
    with subprocess.Popen(command("translate", run, word), stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        shown = b""
        while not shown.endswith(b"\n"):
            shown += os.read(ours, 10_000)
        process.communicate(timeout=60)
    os.close(ours)
    assert shown.decode() == "x]0;yz" * 40 + "\r\n"
