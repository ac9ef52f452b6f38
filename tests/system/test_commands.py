"""The commands as users call them, on real runs."""

import json
import random
import shutil
from pathlib import Path

import pytest
import yaml

from conftest import LSTM, Tiny, lockstep, steps
from lockstep.run.checkpoint import sign


@pytest.fixture(scope="module")
def trained(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with several evaluations, on two workers."""
    run = tmp_path_factory.mktemp("runs") / "trained"
    settings = ("train.steps=12", "train.evaluate_every=4", "train.checkpoint_every=4", "train.keep_last=1")
    lockstep("train", tiny.config, *settings, "--workers", 2, "--run", run)
    return run


def test_tensorboard_has_the_scalars_of_the_journal(trained: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    phases = {f"phase/{name}" for name in ("input", "forward", "backward", "merge", "update")}
    assert tags >= {
        "train_loss",
        "eval_loss",
        "sacrebleu",
        "learning_rate",
        "words_per_second",
        "Eval_BLEU_Score",
        *phases,
    }
    losses = {event.step: event.value for event in events.Scalars("train_loss")}
    assert losses == pytest.approx({line["step"]: line["loss"] for line in steps(trained)}, rel=1e-6)
    assert [event.step for event in events.Scalars("sacrebleu")] == [4, 8, 12]


def test_the_step_line_has_the_agreed_fields(trained: Path) -> None:
    for rank in (0, 1):
        for line in steps(trained, rank):
            assert set(line["phases"]) == {"input", "forward", "backward", "merge", "update"}
            assert sum(line["phases"].values()) == pytest.approx(line["seconds"], rel=1e-3)
            assert line["bytes_sent"] > 0
            assert line["scope"] == "global"
            assert line["warmup"] == (line["step"] <= 5)


def test_a_checkpoint_can_be_read_without_the_trainer(trained: Path) -> None:
    from safetensors.numpy import load_file
    from sentencepiece import SentencePieceProcessor

    folder = trained / "checkpoints" / "step-00000012" / "model"
    assert load_file(folder / "model.safetensors")["embedding.weight"].shape == (330, 32)
    assert SentencePieceProcessor(model_file=str(folder / "vocabulary.model")).get_piece_size() == 330
    assert json.loads((folder / "config.json").read_text())["model"]["width"] == 32


def test_evaluate_repeats_the_score_of_the_journal(trained: Path) -> None:
    result = json.loads(lockstep("evaluate", trained, "--set", "validation", "--checkpoint", "last", "--json").stdout)
    from lockstep.run.journal import read

    last = read(trained / "journal").of("evaluation")[-1]
    assert result["sacrebleu"] == pytest.approx(last["scores"]["sacrebleu"], abs=0.01)
    assert result["loss"] == pytest.approx(last["scores"]["loss"], rel=1e-4)
    assert "tok:13a" in result["signature"]
    assert result["too_long"] == 0


def test_translate_reads_a_file_and_keeps_its_lines(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("ba be bi\n\nlo lu\n")
    lockstep("translate", trained, "-i", tmp_path / "in.txt", "-o", tmp_path / "out.txt")
    lines = (tmp_path / "out.txt").read_text().split("\n")
    assert len(lines) == 4
    assert lines[1] == ""
    pairs = lockstep("translate", trained, "-i", tmp_path / "in.txt", "--json").stdout.splitlines()
    assert [json.loads(line)["source"] for line in pairs] == ["ba be bi", "", "lo lu"]


def test_translate_says_when_the_best_checkpoint_is_missing(trained: Path, tmp_path: Path) -> None:
    last = shutil.copytree(trained / "checkpoints" / "step-00000012", tmp_path / "run/checkpoints/step-00000012")
    known = json.loads((last / "manifest.json").read_text())
    progress = known["progress"] | {"best_step": 6}
    (last / "manifest.json").write_text(json.dumps(sign(progress, known["config"], known["files"])))
    (tmp_path / "in.txt").write_text("ba be bi\n")
    words = ("translate", tmp_path / "run", "-i", tmp_path / "in.txt")
    shown = lockstep(*words)
    sentence = "The best checkpoint, of step 6, is missing: the last one, of step 12, is used.\n"
    assert shown.stderr.startswith(f"{sentence}Translated 1 line in ")
    assert len(shown.stdout.splitlines()) == 1
    assert lockstep(*words, "--checkpoint", "last").stderr.startswith("Translated 1 line in ")


def test_evaluate_explains_what_it_cannot_score(trained: Path) -> None:
    error = lockstep("evaluate", trained / "checkpoints" / "step-00000012", code=2).stderr
    assert "is a model without its run" in error
    assert "The training text is not scored" in lockstep("evaluate", trained, "--set", "train", code=2).stderr


def test_report_makes_the_folder_it_writes_to(trained: Path, tmp_path: Path) -> None:
    lockstep("report", trained, "--to", tmp_path / "new" / "folder")
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == ["report.html", "report.md"]
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        error = lockstep("report", trained, "--to", place, code=2).stderr
        assert error.startswith(f"Error: The folder {place} cannot be made: {tmp_path / 'file'} is a file.\n")


def test_runs_lists_state_step_and_best(trained: Path) -> None:
    listed = json.loads(lockstep("runs", trained.parent, "--json").stdout)
    assert [(run["state"], run["step"]) for run in listed] == [("finished", 12)]
    assert "trained" in lockstep("runs", trained.parent).stdout


def test_the_summary_leaves_out_the_warmup(trained: Path) -> None:
    (summary,) = json.loads(lockstep("runs", trained.parent, "--json").stdout)
    measured = [line for line in steps(trained) if line["step"] > 5]
    assert summary["measured_steps"] == 7
    expected = sum(line["global_target_words"] for line in measured) / sum(line["seconds"] for line in measured)
    assert summary["words_per_second"] == pytest.approx(expected)


def test_the_demo_trains_and_shows_ten_translations(tmp_path: Path) -> None:
    small = (
        "data.grammar.train=1500",
        "data.grammar.validation=10",
        "data.grammar.test=12",
        "data.vocabulary.size=900",
    )
    settings = ("train.steps=6", "train.evaluate_every=6", "batch.words=600", f"data.corpus={tmp_path / 'corpus'}")
    shown = lockstep("demo", *small, *settings, "--run", tmp_path / "run").stdout
    assert "Held-out test: sacreBLEU" in shown
    assert "2 workers, allreduce" in shown
    english = (tmp_path / "corpus" / "test.source.txt").read_text().splitlines()
    assert [line.split()[0] in shown for line in english[:10]] == [True] * 10


def test_the_precision_chosen_at_the_first_start_is_kept(tiny: Tiny, tmp_path: Path) -> None:
    train = ("train", tiny.config, "train.precision=auto", "--run", tmp_path)
    lockstep(*train, "train.steps=2")
    choices = json.loads((tmp_path / "choices.json").read_text())
    chosen = choices["precision"]
    assert chosen in ("fp32", "bf16")
    other = "bf16" if chosen == "fp32" else "fp32"
    (tmp_path / "choices.json").write_text(json.dumps(choices | {"precision": other}))
    result = lockstep(*train, "train.steps=3")
    assert f"thread each, {other}" in result.stderr
    assert ("emulated" in result.stderr) == (other == "bf16")


def test_two_workers_learn_word_order_and_a_dictionary(tmp_path: Path) -> None:
    draw = random.Random(5)
    english = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    german = dict(
        zip(english, ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"], strict=True)
    )
    for name, count in {"train": 3000, "valid": 40}.items():
        lines = [[draw.choice(english) for _ in range(draw.randint(2, 6))] for _ in range(count)]
        (tmp_path / f"{name}.en").write_text("".join(" ".join(line) + "\n" for line in lines))
        target = [[german[word] for word in [*line[1:], line[0]]] for line in lines]  # the first word goes to the end
        (tmp_path / f"{name}.de").write_text("".join(" ".join(line) + "\n" for line in target))
    data = {"folder": str(tmp_path), "train": ["train"], "validation": ["valid"], "corpus": str(tmp_path / "corpus")}
    config = {
        "data": data | {"vocabulary": {"size": 310}},
        "batch": {"words": 600},
        "model": {"encoder_layers": 1, "decoder_layers": 1, "width": 64, "feed_forward": 128, "heads": 4, "dropout": 0},
        "train": {"steps": 250, "evaluate_every": 250, "precision": "fp32", "label_smoothing": 0.0},
        "schedule": {"name": "cosine", "peak": 0.005, "warmup": 30},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    words = ("train", tmp_path / "c.yaml", "--workers", 2, "--run", tmp_path / "run", "--json")
    summary = json.loads(lockstep(*words).stdout)
    assert summary["loss"] < 0.1
    assert summary["best_score"] > 90


def test_an_lstm_is_trained_scored_and_used_by_the_same_commands(tiny: Tiny, tmp_path: Path) -> None:
    """By one setting on top of a Transformer's config; its loss falls, and its report names no trouble of its own."""
    settings = (*LSTM, "train.steps=60", "schedule.peak=0.01")
    summary = json.loads(lockstep("train", tiny.config, *settings, "--run", tmp_path, "--json").stdout)
    assert summary["loss"] < steps(tmp_path)[0]["loss"] - 1.0
    scores = json.loads(lockstep("evaluate", tmp_path, "--beam", 3, "--json").stdout)
    assert scores["sentences"] == 12
    (tmp_path / "in.txt").write_text("ba be bi\n\nbo bu\n")
    lockstep("translate", tmp_path, "-i", tmp_path / "in.txt", "-o", tmp_path / "out.txt")
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 3
    assert "transformer" not in (tmp_path / "report.md").read_text().lower()


def test_patience_stops_the_run(tiny: Tiny, tmp_path: Path) -> None:
    settings = ("train.steps=40", "train.evaluate_every=2", "train.patience=2", "schedule.peak=0.00000001")
    lockstep("train", tiny.config, *settings, "--workers", 2, "--run", tmp_path)
    assert steps(tmp_path)[-1]["step"] == 6


def test_config_shows_and_explains(tiny: Tiny) -> None:
    assert "end-of-sentence tokens" in lockstep("config", "explain", "batch.words").stdout
    assert json.loads(lockstep("config", "schema").stdout)["properties"]["batch"]
    shown = json.loads(lockstep("config", "show", tiny.config, "train.steps=7", "--json").stdout)
    assert shown["train"]["steps"] == 7


def test_config_explain_is_paged_by_section() -> None:
    sections = lockstep("config", "explain", COLUMNS="80").stdout.splitlines()
    assert len(sections) <= 25
    assert any(line.split()[:2] == ["batch", "9"] for line in sections)
    section = lockstep("config", "explain", "batch", COLUMNS="80").stdout
    assert section.count("default: ") == 9
    everything = lockstep("config", "explain", "--all", COLUMNS="80").stdout
    assert section in everything
    facts = json.loads(lockstep("config", "explain", "--all", "--json").stdout)
    assert len(facts) == everything.count("default:")
    assert all(len(line) <= 80 for line in [*sections, *everything.splitlines()])
    assert lockstep("config", "explain", "batch", "--all", code=2).stderr


def test_tables_fit_80_columns_without_breaking_words(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a-name-of-a-run-that-is-rather-long", "b"):
        shutil.copytree(trained, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    runs = lockstep("runs", "list", ".", COLUMNS="80").stdout
    described = lockstep("data", "describe", "b", COLUMNS="80").stdout
    compared = lockstep("runs", "compare", "a-name-of-a-run-that-is-rather-long", "b", COLUMNS="80").stdout
    assert all(len(line) <= 80 for line in (runs + described + compared).splitlines())
    assert "validation" in described.split("Length of")[0]
    for part in ("a-name-of-a-run", "rather-long"):
        assert part in runs
        assert part in compared
    curves = [line for line in compared.splitlines() if set(line) & set("▁▂▃▄▅▆▇█")]
    assert len(curves) == 6  # three curves of two runs, one line each


def test_prepare_prints_what_is_in_the_text(tiny: Tiny) -> None:
    facts = json.loads(lockstep("prepare", tiny.config, "--json").stdout)
    train = facts["sets"]["train"]
    assert train["read"] == 300
    assert train["lines"] + sum(train["removed"].values()) == 300
    assert f"{train['lines']} " in lockstep("prepare", tiny.config).stdout
