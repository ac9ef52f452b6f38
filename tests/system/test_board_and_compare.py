"""`lockstep board` and `lockstep runs compare` with real runs."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conftest import Tiny, command, lockstep, steps


@pytest.fixture(scope="module")
def runs(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`one` with one worker, `two` with two and another learning rate."""
    folder = tmp_path_factory.mktemp("runs")
    train = ("train", tiny.config, "train.steps=8", "train.evaluate_every=4")
    lockstep(*train, "--run", folder / "one")
    lockstep(*train, "schedule.peak=0.004", "--workers", 2, "--run", folder / "two")
    return folder


@contextmanager
def board(*words: object, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Starts the command and yields its process and the address that it printed."""
    words = ("board", *words, "--port", 0)
    process = subprocess.Popen(
        command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env
    )
    assert process.stdout is not None
    try:
        sentence = process.stdout.readline()
        address = re.search(r"http://\S+", sentence)
        assert address, f"{sentence}{process.communicate()[1]}"
        yield process, address[0]
    finally:
        process.kill()
        process.communicate()


def get_json(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"{address}{path}", timeout=60) as answer:
        return json.load(answer)


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_tensorboard_shows_runs_side_by_side_by_name(runs: Path, tmp_path: Path) -> None:
    with board(runs / "one", runs / "two", TMPDIR=str(tmp_path)) as (process, address):
        wait_for(lambda: sorted(get_json(address, "data/plugin/scalars/tags")) == ["one", "two"])
        assert sorted(get_json(address, "data/runs")) == ["one", "two"]
        for name in ("one", "two"):
            tags = get_json(address, "data/plugin/scalars/tags")
            assert "train_loss" in tags[name]
            points = get_json(address, f"data/plugin/scalars/scalars?run={name}&tag=train_loss")
            losses = [line["loss"] for line in steps(runs / name)]
            assert [value for _, _, value in points] == pytest.approx(losses, rel=1e-6)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
        assert not list(tmp_path.glob("lockstep-board-*")), "nothing is left behind"


def test_the_board_opens_in_the_browser_when_asked(runs: Path, tmp_path: Path) -> None:
    program = tmp_path / "browser"
    program.write_text(f'#!{sys.executable}\nimport sys\nopen("{tmp_path}/opened", "w").write(sys.argv[1])\n')
    program.chmod(0o755)
    with board(runs, "--open", BROWSER=str(program)) as (_, address):
        wait_for(lambda: (tmp_path / "opened").exists() and (tmp_path / "opened").read_text() == address)


def test_a_port_in_use_is_reported(runs: Path) -> None:
    with board(runs / "one") as (_, address):
        port = address.rstrip("/").rpartition(":")[2]
        refused = lockstep("board", runs / "one", "--port", port, code=2)
        assert port in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    for words in (("board", tmp_path), ("runs", "compare", tmp_path)):
        refused = lockstep(*words, code=2)
        assert f"There is no run in {tmp_path}" in refused.stderr


def test_compare_shows_differences_before_figures(runs: Path) -> None:
    shown = lockstep("runs", "compare", runs / "one", runs / "two").stdout
    places = [
        shown.index(word) for word in ("schedule.peak", "1 and 2 workers", "time per step", "training loss by step")
    ]
    assert places == sorted(places)
    assert "0.002" in shown
    assert "0.004" in shown
    assert re.search("[▁▂▃▄▅▆▇█]{20}", shown)
    assert "target words" in lockstep("runs", "compare", runs, "--by", "words").stdout


def test_compare_gives_the_same_facts_as_json(runs: Path) -> None:
    facts = json.loads(lockstep("runs", "compare", runs, "--json").stdout)
    assert [side["name"] for side in facts["sides"]] == ["one", "two"]
    assert {one["what"]: one["values"] for one in facts["settings"]} == {"schedule.peak": [0.002, 0.004]}
    assert {one["what"]: one["values"] for one in facts["environment"]}["workers"] == [1, 2]
    for side in facts["sides"]:
        losses = side["curves"]["training loss"]
        assert losses["step"] == list(range(1, 9))
        assert losses["value"] == [line["loss"] for line in steps(runs / side["name"])]
        assert losses["words"][-1] == sum(line["global_target_words"] for line in steps(runs / side["name"]))
        assert losses["seconds"] == sorted(losses["seconds"])
        assert side["curves"]["sacrebleu"]["step"] == [4, 8]


def test_compare_writes_a_page(runs: Path, tmp_path: Path) -> None:
    lockstep("runs", "compare", runs, "--html", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "one · two" in text
    assert "Plotly" in text
    refused = lockstep("runs", "compare", runs, "--html", tmp_path / "no" / "page.html", code=1)
    assert "Traceback" not in refused.stderr


def test_one_run_cannot_be_compared(runs: Path) -> None:
    assert "only one run" in lockstep("runs", "compare", runs / "one", code=2).stderr


def test_runs_lists_by_default(runs: Path) -> None:
    names = [Path(run["run"]).name for run in json.loads(lockstep("runs", runs, "--json").stdout)]
    assert names == ["one", "two"]
    assert lockstep("runs", "list", runs, "--json").stdout == lockstep("runs", "--json", runs).stdout
    assert "compare" in lockstep("runs", "--help").stdout
