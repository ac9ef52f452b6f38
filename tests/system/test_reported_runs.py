"""The report of real runs: every figure is computed a second time from the journal, independently."""

import json
import re
import signal
import subprocess
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
import yaml

from conftest import Tiny, command, lockstep, running, steps, write_pairs

UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "kB": 1e3, "MB": 1e6, "%": 0.01, "Gbit/s": 1e9}
UNITS |= {"Mbit/s": 1e6, "kbit/s": 1e3}


def sections(run: Path) -> dict[int, str]:
    """The text of every numbered section of report.md."""
    parts = re.split(r"^## (\d+)\. ", (run / "report.md").read_text(), flags=re.MULTILINE)[1:]
    return {int(number): text.partition("\n## ")[0] for number, text in zip(parts[::2], parts[1::2], strict=True)}


def table(section: str) -> dict[str, str]:
    """Figures of a section: name -> value as it is written."""
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[0] != "figure"}


def value(text: str) -> float:
    """'1 min 3 s' -> 63, '12.3 %' -> 0.123, '1,234' -> 1234, 'r = 0.5' -> 0.5."""
    text = text.partition(" (")[0].removeprefix("r = ").removeprefix("less than ").replace(",", "")
    words = text.split()
    if len(words) == 1:
        return float(words[0])
    return sum(float(number) * UNITS[unit] for number, unit in zip(words[::2], words[1::2], strict=True))


def journal(run: Path, rank: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "journal" / f"worker-{rank:04d}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs a smaller demo, which writes its report at the end of the training."""
    folder = tmp_path_factory.mktemp("demo")
    small = (
        "data.grammar.train=1500",
        "data.grammar.validation=10",
        "data.grammar.test=12",
        "data.vocabulary.size=900",
    )
    settings = ("train.steps=40", "train.evaluate_every=8", "batch.words=600", f"data.corpus={folder / 'corpus'}")
    shown = lockstep("demo", *small, *settings, "--run", folder / "run").stdout
    assert "report.html" in shown
    return folder / "run"


def test_the_demo_ends_with_a_report_that_answers_all_eleven_questions(demo: Path) -> None:
    report = sections(demo)
    assert sorted(report) == list(range(1, 12))
    for number, section in report.items():
        assert table(section), f"question {number} has no figures"
        assert "not measured:" not in section
    verdict = (demo / "report.md").read_text().split("\n\n")[1].splitlines()
    assert len(verdict) == 3 + verdict[0].startswith("Other programs"), "other tests may disturb the run"
    page = (demo / "report.html").read_text()
    assert page.count('class="plot"') >= 11


def test_wall_time_and_its_parts_are_those_of_the_journal(demo: Path) -> None:
    lines, figures = journal(demo), table(sections(demo)[1])
    taken = [line for line in lines if line["kind"] == "step"]
    assert value(figures["wall time"]) == pytest.approx(lines[-1]["time"] - lines[0]["time"], rel=0.01)
    for phase in ("forward", "backward", "merge", "update"):
        assert value(figures[phase]) == pytest.approx(sum(line["phases"][phase] for line in taken), rel=0.01)
    for name, kind in (("evaluation", "evaluation"), ("checkpoints", "checkpoint")):
        assert value(figures[name]) == pytest.approx(
            sum(one["seconds"] for one in lines if one["kind"] == kind), rel=0.01
        )
    assert "The goal of 40 steps is reached" in sections(demo)[1]


def test_scores_and_losses_are_those_of_the_evaluations(demo: Path) -> None:
    evaluations = [line for line in journal(demo) if line["kind"] == "evaluation"]
    learning, gap = (table(sections(demo)[number]) for number in (2, 3))
    losses = [line["scores"]["loss"] for line in evaluations]
    assert value(learning["loss at the last evaluation"]) == pytest.approx(losses[-1], rel=1e-3)
    assert value(learning["best loss"]) == pytest.approx(min(losses), rel=1e-3)
    assert value(learning["best sacrebleu"]) == pytest.approx(
        max(line["scores"]["sacrebleu"] for line in evaluations), rel=1e-3, abs=1e-3
    )
    assert value(gap["validation loss"]) == pytest.approx(losses[-1], rel=1e-3)
    near = [line["loss"] for line in journal(demo) if line["kind"] == "step" and line["step"] > 32]
    assert value(gap["training loss"]) == pytest.approx(fmean(near), rel=1e-3)
    words = json.loads((demo / "data.json").read_text())["sets"]["train"]["target_words"]
    seen = sum(line["global_target_words"] for line in journal(demo) if line["kind"] == "step")
    assert value(gap["passes through the text"]) == pytest.approx(seen / words, rel=0.01)


def test_busy_shares_exclude_waiting(demo: Path) -> None:
    figures = table(sections(demo)[4])
    for rank in (0, 1):
        taken = [line for line in steps(demo, rank) if not line["warmup"]]
        worked = sum(line["phases"][phase] for line in taken for phase in ("forward", "backward", "update"))
        assert value(figures[f"busy, worker {rank}"]) == pytest.approx(
            worked / sum(line["seconds"] for line in taken), abs=6e-4
        )


def test_network_figures_are_those_of_the_worker_that_waited_least(demo: Path) -> None:
    figures = table(sections(demo)[5])
    both = [[line for line in steps(demo, rank) if not line["warmup"]] for rank in (0, 1)]
    assert value(figures["sent per step and worker"]) == pytest.approx(
        fmean(line["bytes_sent"] for taken in both for line in taken), rel=0.01
    )
    exposed = fmean(
        sum(one["phases"]["merge"] for one in taken) / sum(one["seconds"] for one in taken) for taken in both
    )
    assert value(figures["exposed waiting"]) == pytest.approx(exposed, abs=6e-4)
    own, total, travel = [], [], []
    for pair in zip(*both, strict=True):
        last = min(pair, key=lambda line: float(line["phases"]["merge"]))
        own.append(last["phases"]["merge"])
        total.append(sum(last["phases"].values()))
        travel.append(min(line["phases"]["merge"] + line["merge_overlapped"] for line in pair))
    assert value(figures["of it the exchange itself"]) == pytest.approx(sum(own) / sum(total), abs=2e-3)
    assert value(figures["rate while travelling"]) == pytest.approx(
        8 * both[0][0]["bytes_sent"] / fmean(travel), rel=0.01
    )
    assert figures["link speed"] == "not meaningful"


def test_the_learning_rate_is_that_of_the_journal(demo: Path) -> None:
    figures = table(sections(demo)[6])
    rates = [line["lr"] for line in steps(demo)]
    assert value(figures["highest rate used"]) == pytest.approx(max(rates), rel=1e-3)
    assert value(figures["rate at the last step"]) == pytest.approx(rates[-1], rel=1e-3)
    assert value(figures["furthest from the formula"]) == 0.0
    assert "cosine" in sections(demo)[6]


def test_the_corpus_is_the_one_of_data_json(demo: Path) -> None:
    figures = table(sections(demo)[7])
    train = json.loads((demo / "data.json").read_text())["sets"]["train"]
    assert value(figures["lines"]) == train["lines"]
    assert value(figures["text"]) == pytest.approx(train["text_bytes"], rel=0.01)
    assert value(figures["words, en"]) == train["source_plain_words"]
    assert value(figures["pieces, de"]) == train["target_words"]


def test_checkpoint_files_and_sizes_are_those_on_the_disk(demo: Path) -> None:
    folder = sorted((demo / "checkpoints").glob("step-*"))[-1]
    on_disk = {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    report = sections(demo)
    files = table(report[8])
    assert {name: value(size) for name, size in files.items()} == pytest.approx(on_disk, rel=0.01)
    assert value(table(report[9])["a checkpoint"]) == pytest.approx(sum(on_disk.values()), rel=0.01)
    assert all(word in report[8] for word in ("optimizer state", "vocabulary", "weights alone", "SHA-256"))


def test_step_times_exclude_the_warmup(demo: Path) -> None:
    figures, text = table(sections(demo)[10]), sections(demo)[10]
    taken = [line["seconds"] for line in steps(demo) if not line["warmup"]]
    assert len(taken) == 35
    assert "mean of 35 steps, 5 warm-up steps left out, worker 0" in text
    assert value(figures["mean"]) == pytest.approx(fmean(taken), rel=1e-3)
    assert value(figures["median"]) == pytest.approx(median(taken), rel=1e-3)
    assert min(taken) < value(figures["95th percentile"]) <= 1.001 * max(taken)
    assert sum(one <= value(figures["95th percentile"]) * 1.001 for one in taken) in (33, 34)
    words = sum(line["global_target_words"] for line in steps(demo) if not line["warmup"])
    assert value(figures["target words per second"]) == pytest.approx(words / sum(taken), rel=1e-3)


def test_the_correlation_is_the_one_of_the_journals(demo: Path) -> None:
    figures = table(sections(demo)[11])
    both = [[line for line in steps(demo, rank) if not line["warmup"]] for rank in (0, 1)]
    x = [min(one["phases"]["merge"] + one["merge_overlapped"] for one in pair) for pair in zip(*both, strict=True)]
    y = [line["seconds"] for line in both[0]]
    mean_x, mean_y = fmean(x), fmean(y)
    products = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    r = products / (sum((a - mean_x) ** 2 for a in x) * sum((b - mean_y) ** 2 for b in y)) ** 0.5
    assert value(figures["with the time gradients travel"]) == pytest.approx(r, abs=0.006)
    assert figures["with the bytes sent"] == "not measured"


def test_the_bottleneck_is_named_with_its_cost(demo: Path) -> None:
    report = (demo / "report.md").read_text()
    sentence = report.split("\n\n")[1].splitlines()[-1]
    rows = re.findall(r"^\| (\w+) \| (\S+ %) \|$", report.partition("## What a step is made of")[2], re.MULTILINE)
    assert [name for name, _ in rows] == ["compute", "imbalance", "input", "exchange"], "one machine: no network"
    costs = {name: value(cost) for name, cost in rows}
    assert sum(costs.values()) == pytest.approx(1.0, abs=1e-3)
    largest = max(list(costs)[1:], key=lambda name: costs[name])
    if costs[largest] > 0.251:
        names = {"exchange": "the exchange between processes", "input": "the input", "imbalance": "imbalance"}
        assert f"bottleneck is {names[largest]}: " in sentence or "varies too much" in sentence
    elif costs[largest] < 0.249:
        assert "bottleneck is" not in sentence
    assert "bottleneck is the network" not in report
    assert re.search(r"\d %", sentence)
    facts = json.loads(lockstep("report", demo, "--json").stdout)["bottleneck"]
    assert facts["costs"] == pytest.approx({"network" if n == "exchange" else n: c for n, c in costs.items()}, abs=1e-3)
    assert facts["bound_by"] == max(facts["costs"], key=lambda name: facts["costs"][name])


def test_the_command_prints_the_verdict_and_all_facts_as_json(demo: Path) -> None:
    printed = lockstep("report", demo).stdout.splitlines()
    assert printed[-1].startswith(f"Report: {demo / 'report.html'}")
    facts = json.loads(lockstep("report", demo, "--json").stdout)
    assert facts["verdict"] == printed[:-1]
    assert len(facts["answers"]) == 11


def test_a_report_can_be_written_elsewhere(demo: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    lockstep("report", demo, "--to", tmp_path / "there")
    assert {path.name for path in (tmp_path / "there").iterdir()} == {"report.html", "report.md"}


def test_a_slow_worker_is_named_as_the_bottleneck(tiny: Tiny, tmp_path: Path) -> None:
    """The journal of worker 1 is changed: every forward pass takes a second longer. Without samples no other program can be
    the reason."""
    run = tmp_path / "run"
    lockstep("train", tiny.config, "train.steps=30", "watch.sample_seconds=0", "--workers", 2, "--run", run)
    path = run / "journal" / "worker-0001.jsonl"
    lines = []
    for line in journal(run, 1):
        if line["kind"] == "step":
            line["phases"]["forward"] += 1.0
            line["phases"]["merge"] = 0.0
            line["seconds"] = sum(line["phases"].values())
        lines.append(json.dumps(line))
    path.write_text("\n".join(lines) + "\n")
    facts = json.loads(lockstep("report", run, "--json").stdout)
    assert facts["bottleneck"]["cause"] == "imbalance: worker 1"


def train_and_report(folder: Path, steps: int, words: int, width: int, rate: float) -> dict[str, Any]:
    """Trains a small model without dropout on `train` and `valid` in a folder; returns the facts of its report."""
    data = {"folder": str(folder), "train": ["train"], "validation": ["valid"], "corpus": str(folder / "corpus")}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "width": width, "feed_forward": 2 * width, "heads": 2}
    often = {"evaluate_every": steps // 12, "checkpoint_every": steps}
    config = {
        "data": data | {"vocabulary": {"size": 300}},
        "batch": {"words": words},
        "model": layers | {"dropout": 0},
        "train": {"steps": steps, "label_smoothing": 0.0, "threads": 1} | often,
        "schedule": {"name": "constant", "peak": rate, "warmup": 10},
        "search": {"beam": 1, "max_ratio": 1.0},
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(config))
    lockstep("train", folder / "c.yaml", "--run", folder / "run")
    return dict(json.loads(lockstep("report", folder / "run", "--json").stdout))


@pytest.mark.slow
def test_overfitting_to_a_tiny_corpus_without_dropout_is_reported(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train", 60, 1)
    write_pairs(tmp_path, "valid", 30, 2)
    facts = train_and_report(tmp_path, steps=240, words=300, width=64, rate=0.003)
    assert facts["answers"][2]["short"] == "overfitting"
    assert facts["answers"][1]["short"] == "trained"
    assert "overfitting" in facts["verdict"][-2]
    assert any("dropout" in one["what"] for one in facts["advice"])


@pytest.mark.slow
def test_a_run_that_has_learned_what_there_is_to_learn_is_called_trained(tmp_path: Path) -> None:
    """The translations have nothing to do with the sentences: a model can learn which words there are, and no more."""
    for name, count in (("train", 6000), ("valid", 60)):
        write_pairs(tmp_path, name, count, seed=count)
        lines = (tmp_path / f"{name}.de").read_text().splitlines()
        (tmp_path / f"{name}.de").write_text("".join(f"{line}\n" for line in reversed(lines)))
    facts = train_and_report(tmp_path, steps=600, words=1000, width=16, rate=0.01)
    assert facts["answers"][1]["short"] == "trained"
    assert facts["answers"][2]["short"] == "no overfitting"
    assert any("Stop earlier" in one["what"] for one in facts["advice"])


def test_a_run_that_is_too_short_is_not_called_trained(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("train.steps=40", "train.evaluate_every=5", "train.checkpoint_every=40")
    lockstep("train", tiny.config, *settings, "--run", tmp_path / "run")
    facts = json.loads(lockstep("report", tmp_path / "run", "--json").stdout)
    assert facts["answers"][1]["short"] == "still learning"
    assert facts["answers"][2]["short"] == "no overfitting"
    assert any("Train twice as long" in one["what"] for one in facts["advice"])


def test_a_run_killed_in_the_middle_and_continued_with_other_workers_is_reported(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("train.steps=30", "train.checkpoint_every=8", "train.save=wait")
    train = ("train", tiny.config, *settings, "--run", tmp_path)
    lockstep(*train, "--workers", 2, fault="kill:phase=merge:rank=0:step=13", code=None)
    assert not (tmp_path / "report.html").exists()
    cut = lockstep("report", tmp_path).stdout
    assert "was cut off after 12 steps" in cut
    assert "18 of 30 steps would take" in sections(tmp_path)[1]
    lockstep(*train, "--workers", 1)
    report = sections(tmp_path)
    assert "in 2 launches" in report[1]
    assert value(table(report[1])["computed twice"]) > 0
    assert "mean of 17 steps, 5 warm-up steps left out, worker 0, launches with the last setting only" in report[10]
    assert "no network used" in report[5]


def test_a_report_that_fails_is_a_warning_and_the_training_succeeds(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    result = lockstep("train", tiny.config, "--run", tmp_path)
    (warning,) = [line for line in result.stderr.splitlines() if "Warning" in line]
    assert "the report could not be written" in warning
    assert "Traceback" not in result.stderr
    assert "finished at step 8" in result.stdout


def test_a_live_report_follows_a_run_to_its_end(tiny: Tiny, tmp_path: Path) -> None:
    with running(tiny, tmp_path, workers=1) as process:
        live = subprocess.Popen(
            command("report", "--live", "--every", "1", tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert live.stderr is not None
        assert "updated every 1 s" in live.stderr.readline()
        assert '<meta http-equiv="refresh"' in (tmp_path / "report.html").read_text()
        assert "is running" in (tmp_path / "report.md").read_text()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        printed, _ = live.communicate(timeout=60)
    assert "was stopped after" in printed
    assert '<meta http-equiv="refresh"' not in (tmp_path / "report.html").read_text()


def test_a_folder_that_is_no_run_gives_one_clear_sentence(tmp_path: Path) -> None:
    result = lockstep("report", tmp_path, code=2)
    assert f"{tmp_path} is not a run: it has no journal." in result.stderr
    assert "Traceback" not in result.stderr
