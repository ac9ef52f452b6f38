"""Which checkpoints of a run stay, and how the others are deleted. Training and `lockstep checkpoint prune` share it."""

import shutil
from collections.abc import Callable
from pathlib import Path

from lockstep.run.checkpoint import Checkpoint, choose, list_all

Keep = Callable[[list[Checkpoint]], set[Path]]
"""A rule: it takes all checkpoints of a run, oldest first, and returns the folders of those that stay."""


def keep_best_and_last(last: int, best: int, higher_is_better: bool, best_step: int | None = None) -> Keep:
    """Returns a rule that retains the `last` newest checkpoints and the `best` ones with the best evaluations. `best_step`,
    the best step of the run so far, counts as the best of all."""

    def keep(all_saved: list[Checkpoint]) -> set[Path]:
        ranked = rank_by_score(all_saved, higher_is_better, best_step)
        return {saved.path for saved in all_saved[-last:]} | {saved.path for saved in ranked[:best]}

    return keep


def keep_at_least(last: int, best: int, higher_is_better: bool) -> Keep:
    """Returns the same rule for pruning by hand: however small `last` and `best` are, it retains the best checkpoint of the
    run and the last one."""

    def keep(all_saved: list[Checkpoint]) -> set[Path]:
        best_step = all_saved[-1].progress().best_step
        chosen = keep_best_and_last(max(1, last), best, higher_is_better, best_step)(all_saved)
        return chosen | {choose(all_saved, "best").saved.path}

    return keep


def rank_by_score(all_saved: list[Checkpoint], higher_is_better: bool, best_step: int | None) -> list[Checkpoint]:
    """Returns the checkpoints that were evaluated, the best one first. `best_step` counts as the best of all."""
    ranked = [
        ((saved.step != best_step, evaluation.rank(higher_is_better), saved.path), saved)
        for saved in all_saved
        if (evaluation := saved.evaluation) is not None
    ]
    return [saved for _, saved in sorted(ranked, key=lambda pair: pair[0])]


def delete_others(folder: Path, keep: set[Path]) -> None:
    """Deletes the checkpoints that are not in `keep`. Each is renamed first, so that a half-deleted one is never taken for
    complete. Folders without a readable manifest stay."""
    for saved in list_all(folder):
        if saved.path not in keep:
            saved.path.rename(saved.path.with_name(f".{saved.path.name}.deleted"))
    sweep(folder)


def sweep(folder: Path) -> None:
    """Removes what a killed launch left half-written or half-deleted. What cannot be removed is left for the next time."""
    for path in folder.glob(".step-*"):
        shutil.rmtree(path, ignore_errors=True)
