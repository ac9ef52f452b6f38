"""The learning rate of the journal is compared with a formula that the report states on its own."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from lockstep.explain.answer import Answer
from lockstep.explain.answers import rate
from lockstep.explain.evidence import Evidence
from lockstep.explain.measures.schedule_formula import ScheduleFormula
from lockstep.explain.reading.record import Record
from lockstep.train.schedule import learning_rate
from lockstep.train.train_settings import ScheduleSettings
from madeup import MadeUp, constant_rate

Name = Literal["noam", "inverse_sqrt", "cosine", "linear", "stairs", "constant"]


def answer_rate(run: Path) -> Answer:
    return rate.answer(Evidence(Record.open(run)))


@pytest.mark.parametrize("name", ["noam", "inverse_sqrt", "cosine", "linear", "stairs", "constant"])
@pytest.mark.parametrize("warmup", [0, 1, 40])
@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_the_formula_is_that_of_the_trainer(name: Name, warmup: int, floor: float) -> None:
    settings = ScheduleSettings(name=name, peak=0.003, factor=2.0, warmup=warmup, floor=floor, drops=[60, 90])
    stated = ScheduleFormula(name, 0.003, 2.0, warmup, floor, steps=200, width=160, drops=(60, 90), drop=0.1)
    steps = np.arange(1.0, 221.0)
    expected = [learning_rate(settings, int(step), 200, 160) for step in steps]
    assert stated.at(steps) == pytest.approx(np.array(expected), rel=1e-12)


def test_a_journal_that_follows_the_formula_is_reported(tmp_path: Path) -> None:
    MadeUp(tmp_path).launch(range(1, 21))
    answer = answer_rate(tmp_path)
    assert "follows the formula at every step" in answer.text
    assert "rises linearly during a warm-up of 4 steps" in answer.text
    assert answer.short == "constant, peak 0.001"


def test_a_journal_that_deviates_from_the_formula_is_reported(tmp_path: Path) -> None:
    MadeUp(tmp_path).launch(range(1, 21), rate=lambda step: 1.1 * constant_rate(step))
    answer = answer_rate(tmp_path)
    assert "deviates from the formula by up to 10.0 % of the peak" in answer.text
    assert answer.tone == "mind"


def test_every_launch_is_compared_with_its_own_schedule(tmp_path: Path) -> None:
    run = MadeUp(tmp_path)
    run.launch(range(1, 21), rate=lambda step: 2 * constant_rate(step))
    run.launch(range(21, 41), attempt=2, resumed=20, changed={"schedule.peak": [0.002, 0.001]})
    answer = answer_rate(tmp_path)
    assert "follows the formula" in answer.text
    assert "changed between launches" in answer.text


def test_more_steps_change_only_a_schedule_that_ends_with_them(tmp_path: Path) -> None:
    for name, changed in (("stairs", False), ("linear", True)):
        run = MadeUp(tmp_path / name)
        run.config(schedule={"name": name, "warmup": 0})
        run.launch(range(1, 21))
        run.launch(range(21, 41), attempt=2, resumed=20, changed={"train.steps": [20, 40]})
        assert ("changed between launches" in answer_rate(tmp_path / name).text) == changed


@pytest.mark.parametrize("name", ["noam", "inverse_sqrt", "cosine", "linear", "stairs", "constant"])
def test_a_formula_without_a_warmup_does_not_divide_by_zero(name: str) -> None:
    formula = ScheduleFormula(name, 0.003, 2.0, 0, 0.1, steps=200, width=160, drops=(60,), drop=0.1).formula
    assert "/ 0" not in formula
    assert "0^" not in formula.replace("160^", "")


def test_the_width_comes_from_the_journal(tmp_path: Path) -> None:
    """A residual network has no model.width."""
    run = MadeUp(tmp_path)
    run.config(schedule={"name": "noam"}, model={"width": None})
    run.launch(range(1, 21), rate=lambda step: 2.0 * 16**-0.5 * min(step**-0.5, step * 4**-1.5), width=16)
    assert "follows the formula at every step" in answer_rate(tmp_path).text


def test_without_a_schedule_the_answer_is_not_known(tmp_path: Path) -> None:
    MadeUp(tmp_path).launch(range(1, 21))
    (tmp_path / "config.yaml").write_text(json.dumps({"train": {"steps": 20}}))
    assert answer_rate(tmp_path).short == "not known"


@pytest.mark.parametrize("name", ["cosine", "linear", "constant", "inverse_sqrt"])
def test_a_warmup_longer_than_the_run_is_described_truthfully(tmp_path: Path, name: str) -> None:
    run = MadeUp(tmp_path)
    run.config(schedule={"name": name, "warmup": 7200}, train={"steps": 6})
    run.launch(range(1, 7), rate=lambda step: 0.001 * step / 7200)
    answer = answer_rate(tmp_path)
    assert "The warm-up of 7,200 steps does not end within the 6 steps of the run" in answer.text
    assert "follows the formula at every step" in answer.text
    assert "at step 6, before the warm-up does" in answer.text or name in ("constant", "inverse_sqrt")
    assert "zero at step 6" not in answer.text
