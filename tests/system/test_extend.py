"""The example of docs/develop/extend.md is a task that trains with any number of workers."""

import json
import re
from pathlib import Path

import pytest

from conftest import lockstep, manifest, steps
from lockstep.run.checkpoint import choose, list_all
from lockstep.run.journal import read

PAGE = Path(__file__).parents[2] / "docs" / "develop" / "extend.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_example_trains_the_same_with_two_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,), (config,) = blocks("python"), blocks("yaml")
    Path("characters.py").write_text(program)
    Path("characters.yaml").write_text(config)
    Path("train.txt").write_text("the cat sat on the mat and the rat sat on the cat. " * 60)
    Path("held-out.txt").write_text("the rat sat on the mat and the cat sat on the rat. " * 6)
    shown = lockstep("train", "characters.yaml", "--run", "alone").stdout
    lockstep("train", "characters.yaml", "--workers", 2, "--run", "two")
    alone, two = steps(Path("alone")), steps(Path("two"))
    assert [line["loss"] for line in two] == pytest.approx([line["loss"] for line in alone], rel=1e-4)
    assert alone[-1]["loss"] < 0.5 * alone[0]["loss"]
    assert "characters/s" in shown
    report = Path("alone/report.md").read_text()
    assert "characters per second" in report
    assert "label smoothing and dropout" not in report
    assert "translates nothing" in lockstep("translate", "alone", code=2).stderr


@pytest.mark.slow
def test_a_task_may_have_a_score_but_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may also train without any evaluation, and evaluate without telling how far it is."""
    monkeypatch.chdir(tmp_path)
    (program,), (config,) = blocks("python"), blocks("yaml")
    program = program.replace(
        'metric, higher_is_better, unit = "loss", False', 'metric, higher_is_better, unit = "hits", True'
    )
    program = program.replace('Scores({"loss": loss / count})', 'Scores({"hits": count - loss})')
    program = re.sub(r"^ +progress\.(update|finish).*\n", "", program, flags=re.MULTILINE)
    program = program.replace("autocast, progress)", "autocast)")
    program = program.replace("progress.begin(len(self.held_out))", "np.arange(len(self.held_out))")
    assert "progress" not in program
    Path("characters.py").write_text(program)
    Path("characters.yaml").write_text(config)
    for name in ("train.txt", "held-out.txt"):
        Path(name).write_text("the cat sat on the mat and the rat sat on the cat. " * 60)
    assert "best validation" in lockstep("train", "characters.yaml", "--run", "run").stdout
    (Path("run") / "report.md").read_text()
    shown = lockstep("train", "characters.yaml", "train.evaluate_every=null", "--run", "never").stdout
    assert "finished at step 40" in shown
    assert "evaluation 0.0 s" in shown
    assert not read(Path("never/journal")).of("evaluation")
    assert "nothing was evaluated" in Path("never/report.md").read_text()
    assert "own.seen" in lockstep("train", "characters.yaml", "own.seen=4", "--run", "run", code=2).stderr


@pytest.mark.parametrize(
    "checkpoint_every",
    [
        pytest.param(8, id="saved before its evaluation"),
        pytest.param(1000, id="saved for its score", marks=pytest.mark.slow),
    ],
)
def test_the_best_of_equal_scores_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint_every: int
) -> None:
    """The second of two equal scores has the lower loss. Trainer, retention, summary and `best` agree that it is best."""
    monkeypatch.chdir(tmp_path)
    (program,), (config,) = blocks("python"), blocks("yaml")
    program = program.replace(
        'metric, higher_is_better, unit = "loss", False', 'metric, higher_is_better, unit = "hits", True'
    )
    program = program.replace('Scores({"loss": loss / count})', "next(SCORES)")
    scores = [{"hits": hits, "loss": loss} for hits, loss in ((10, 5.0), (20, 4.0), (20, 3.0), (19, 2.0), (18, 1.0))]
    Path("characters.py").write_text(f"{program}\n\nSCORES = map(Scores, {scores})\n")
    Path("characters.yaml").write_text(config)
    for name in ("train.txt", "held-out.txt"):
        Path(name).write_text("the cat sat on the mat and the rat sat on the cat. " * 60)
    settings = ("train.evaluate_every=8", f"train.checkpoint_every={checkpoint_every}", "train.keep_last=1")
    lockstep("train", "characters.yaml", *settings, "--run", "run")
    saved = list_all(Path("run/checkpoints"))
    assert [one.step for one in saved] == [24, 40]
    assert manifest(Path("run"), 40)["progress"]["best_step"] == 24
    assert choose(saved, "best").saved.step == 24
    (summary,) = json.loads(lockstep("runs", ".", "--json").stdout)
    assert (summary["best_score"], summary["best_step"]) == (20.0, 24)


def test_a_task_that_does_not_exist_ends_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("characters.yaml").write_text(blocks("yaml")[0])
    result = lockstep("train", "characters.yaml", "--run", "run", code=2)
    assert "task=characters:make cannot be found" in result.stderr
    assert "Traceback" not in result.stderr
