"""The steps of a journal that stand after a resume: every reader applies the same rule."""

from pathlib import Path
from typing import Any

from lockstep.explain.reading.record import Record
from lockstep.run.journal import Journal, read


def step(number: int, **facts: Any) -> tuple[str, dict[str, Any]]:
    phases = dict.fromkeys(("input", "forward", "backward", "merge", "update"), 0.01)
    return "step", {"step": number, "seconds": 0.05, "phases": phases, **facts}


def evaluation(number: int) -> tuple[str, dict[str, Any]]:
    return "evaluation", {"step": number, "scores": {"loss": 1.0}}


def write(run: Path, *entries: tuple[str, dict[str, Any]], rank: int = 0) -> None:
    """Most lines get the same time: the order in the file decides."""
    journal = Journal(run / "journal", rank)
    for kind, facts in entries:
        journal.write(kind, **facts)
    journal.close()


def standing(run: Path, rank: int = 0) -> list[int]:
    """The steps of a worker, which all readers agree on."""
    steps = [line["step"] for line in read(run / "journal", rank).steps]
    assert Record(run).workers[rank].all_steps.step.tolist() != []
    assert Record(run).workers[rank].steps.step.tolist() == steps
    return steps


def test_a_resume_undoes_what_went_beyond_it(tmp_path: Path) -> None:
    write(tmp_path, *map(step, (1, 2, 3, 4)), evaluation(2), evaluation(4))
    write(tmp_path, ("resume", {"step": 2, "attempt": 2}), step(3, attempt=2))
    assert standing(tmp_path) == [1, 2, 3]
    assert Record(tmp_path).primary.steps.attempt.tolist() == [1, 1, 2]
    assert [line["step"] for line in Record(tmp_path).evaluations] == [2]


def test_a_heal_undoes_what_went_beyond_it_and_nothing_that_follows(tmp_path: Path) -> None:
    write(tmp_path, *map(step, (1, 2, 3)), evaluation(3), ("heal", {"step": 2, "attempt": 1}), step(4), evaluation(4))
    assert standing(tmp_path) == [1, 2, 4]
    assert [line["step"] for line in Record(tmp_path).evaluations] == [4]


def test_steps_of_a_branch_stand_up_to_where_the_next_one_began(tmp_path: Path) -> None:
    first, second = ("1.1", 0), ("1.4", 2)
    write(tmp_path, ("resume", {"step": 0, "lineage": [first]}), *(step(number, branch="1.1") for number in (1, 2, 3)))
    write(tmp_path, ("heal", {"step": 5, "lineage": [first, second]}), step(6, branch="1.4"), step(7))
    assert standing(tmp_path) == [1, 2, 6, 7]


def test_every_part_of_a_step_stands_by_its_last_line(tmp_path: Path) -> None:
    write(tmp_path, step(1, part=0), step(1, part=1), step(2, part=0), step(1, part=1))
    assert standing(tmp_path) == [1, 1, 2]


def test_a_worker_that_missed_a_launch_is_cut_at_the_resume_of_the_first_worker(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path, *map(step, (1, 2, 3)), rank=rank)
    write(tmp_path, ("resume", {"step": 2, "attempt": 2}), step(3, attempt=2))
    assert standing(tmp_path) == [1, 2, 3]
    assert Record(tmp_path).workers[1].steps.step.tolist() == [1, 2]
