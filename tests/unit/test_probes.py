"""When and what is probed. The real thing is tried by real runs in `distributed`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Journal, read
from lockstep.team import Team
from lockstep.train.choices import BatchBudget, Choices, read_choices
from lockstep.train.probes import COUNTED, Probes
from lockstep.watch.clock import PhaseClock


def choices() -> Choices:
    budget: BatchBudget = {"words": 100, "sentences": None, "images": None, "per": "global"}
    return Choices("fp32", 1, budget, threads={"1": 1, "2": 1}, launches=3)


def probe(
    run: Path, team: Team, chosen: Choices | None = None, steps: int = 5, in_step: bool = True, enabled: bool = True
) -> list[dict[str, Any]]:
    """Goes through the first steps of a launch; returns what it journalled."""
    module, journal = nn.Linear(4, 3, bias=False), Journal(run / "journal", team.rank)
    devices = ["CPU"] * team.size
    probes = Probes(RunDirectory(run), team, journal, chosen or choices(), devices, in_step, enabled)
    for _ in range(steps):
        with probes.count_flops():
            module(torch.ones(10, 4)).sum().backward()
        probes.after_step(words=10, parameters=12)
    journal.close()
    return read(run / "journal", team.rank).events


def alone() -> Team:
    return Team(0, 1, torch.device("cpu"))


def test_arithmetic_is_that_of_the_counted_steps(tmp_path: Path) -> None:
    (line,) = probe(tmp_path, alone())
    assert line["kind"] == "model"
    assert line["attempt"] == 3
    assert line["parameters"] == 12
    assert line["flops_per_word"] == 2 * (2 * 4 * 3)  # forward, and the gradient of the weight
    assert line["peak_flops"] > 0


def test_a_step_that_is_taken_again_counts_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", 0)
    probes = Probes(RunDirectory(tmp_path), alone(), journal, choices(), ["CPU"], takes_every_step=True)
    for index in range(5):
        for _ in range(1 + (index == 2)):
            counting = probes.count_flops()
            for _ in range(2):  # micro-batches
                with counting:
                    torch.ones(10, 4) @ torch.ones(4, 3)
        probes.after_step(words=20, parameters=12)
    journal.close()
    assert read(tmp_path / "journal").events[0]["flops_per_word"] == 2 * 4 * 3


def test_a_launch_that_ends_within_its_warmup_tells_nothing(tmp_path: Path) -> None:
    assert probe(tmp_path, alone(), steps=COUNTED[-1]) == []
    assert not (tmp_path / "choices.json").exists()


def test_probes_can_be_turned_off(tmp_path: Path) -> None:
    assert probe(tmp_path, alone(), enabled=False) == []


def test_what_was_measured_is_kept_for_the_same_workers_only(tmp_path: Path) -> None:
    (first,) = probe(tmp_path, alone())
    stored = read_choices(RunDirectory(tmp_path))
    assert stored is not None
    assert replace(stored, measured=[]) == choices()
    stored.measured[0]["peak_flops"] = [123.0]
    *_, second = probe(tmp_path, alone(), stored)
    assert (second["peak_flops"], second["flops_per_word"]) == (123.0, first["flops_per_word"])
    *_, other = probe(tmp_path, alone(), replace(stored, threads={"1": 2}))
    assert other["peak_flops"] != 123.0


def test_workers_that_do_not_step_together_exchange_nothing(tmp_path: Path) -> None:
    apart = Team(1, 2, torch.device("cpu"))  # it has no group: any exchange would fail
    (line,) = probe(tmp_path, apart, in_step=False)
    assert line["peak_flops"] > 0
    assert not (tmp_path / "choices.json").exists()


def test_a_peak_that_cannot_be_measured_is_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object) -> float:
        raise torch.OutOfMemoryError("the device is full")

    monkeypatch.setattr("lockstep.train.probes.measure_matmul_peak", out_of_memory)
    (line,) = probe(tmp_path, alone())
    assert line["peak_flops"] is None
    assert line["flops_per_word"] == 48


def test_gradients_are_stamped_only_when_a_profile_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked in ("", "1"):
        monkeypatch.setenv("LOCKSTEP_PROFILE", asked)
        module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 2))
        journal = Journal(tmp_path / f"asked-{asked}", 0)
        probes = Probes(
            RunDirectory(tmp_path), alone(), journal, choices(), ["CPU"], takes_every_step=True, enabled=False
        )
        probes.watch(module, PhaseClock(torch.device("cpu")))
        for _ in range(12):
            loss = module(torch.ones(3, 4)).sum()
            probes.before_backward()
            loss.backward()
            probes.after_step(words=3, parameters=26)
        journal.close()
        lines = read(tmp_path / f"asked-{asked}").of("profile")
        assert len(lines) == (1 if asked else 0)
    (line,) = lines
    assert [tensor["name"] for tensor in line["tensors"]] == ["0.weight", "1.weight", "1.bias"]
    seconds = {tensor["name"]: tensor["seconds"] for tensor in line["tensors"]}
    assert 0 < seconds["1.bias"] < seconds["0.weight"] == line["backward_seconds"]
    assert line["tensors"][0]["shape"] == [4, 4]
    assert not module[0].weight._post_accumulate_grad_hooks
