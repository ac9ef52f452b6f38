"""`lockstep runs audit` finds every kind of difference between a journal and the order of the global batches."""

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest

from lockstep.data.corpus.batches import Order, Position
from lockstep.data.data_settings import BatchSettings
from lockstep.lab.audit.audit_text import list_limits, write_verdict
from lockstep.lab.audit.compare_order import Audit, audit
from lockstep.lab.audit.share_lines import JournalledShares, join_workers
from lockstep.run.journal import Line

LENGTHS = np.random.default_rng(3).integers(2, 9, 150).astype(np.int32)
ORDER = Order(LENGTHS, LENGTHS, BatchSettings(words=40), seed=1)
PASS = len(ORDER.epoch(0))  # steps in a pass
Journals = dict[int, list[Line]]


def write(
    journals: Journals,
    first: int,
    last: int,
    workers: int = 2,
    attempt: int = 1,
    strategy: str = "allreduce",
    stop: str | None = "finished",
    parts: bool = False,
) -> Journals:
    """Adds a launch that takes these steps as `lockstep train` does."""
    batches = list(islice(ORDER.batches(Position()), last))
    for rank in range(workers):
        lines = journals.setdefault(rank, [])
        lines.append({"kind": "run", "attempt": attempt, "workers": workers, "strategy": strategy, "time": attempt})
        if attempt > 1:
            lines.append({"kind": "resume", "attempt": attempt, "step": first - 1, "time": attempt})
        for step in range(first, last + 1):
            batch = batches[step - 1]
            words = ORDER.target_words(ORDER.share(batch, rank, workers))
            line = {"kind": "step", "step": step, "attempt": attempt, "batch": batch.digest, "applied": True}
            line |= {"epoch": batch.after.epoch, "cursor": batch.after.cursor, "words": {"target": words}}
            lines.append(line | ({"part": rank} if parts else {}))
        if stop is not None:
            lines.append({"kind": "stop", "reason": stop, "step": last, "time": attempt})
    return journals


def compare(journals: Journals) -> tuple[Audit, JournalledShares]:
    journalled = join_workers({rank: iter(lines) for rank, lines in journals.items()})
    return audit(journalled, ORDER.batches(Position()), len(LENGTHS)), journalled


def examine(journals: Journals) -> Audit:
    return compare(journals)[0]


def explain(journals: Journals) -> tuple[str, list[str]]:
    """Returns the verdict, and the sentences about what is not proven."""
    result, journalled = compare(journals)
    return write_verdict(result, journalled, "words"), list_limits(result, journalled)


def line_of(journals: Journals, rank: int, step: int) -> Line:
    return next(line for line in journals[rank] if line["kind"] == "step" and line["step"] == step)


def test_a_straight_run_is_clean() -> None:
    result = examine(write({}, 1, 2 * PASS + 3))
    assert result.is_clean
    assert [(one.once, one.never, one.more) for one in result.complete_passes] == [(150, 0, 0), (150, 0, 0)]
    verdict, limits = explain(write({}, 1, 2 * PASS + 3))
    assert verdict.startswith(
        "Every one of 150 pairs was used exactly once in each of 2 complete passes; 0 interruptions"
    )
    assert limits == []


def test_an_interrupted_run_with_another_number_of_workers_is_clean() -> None:
    journals = write({}, 1, 9, workers=3, stop=None)
    write(journals, 7, 12, workers=1, attempt=2, stop="signal")
    write(journals, 13, PASS + 2, workers=2, attempt=3)
    result = examine(journals)
    assert result.differences == []
    assert result.passes[0].launches == (1, 2, 3)
    verdict, _ = explain(journals)
    assert "exactly once in the complete pass; 2 interruptions, 3 steps computed again." in verdict


def drop_step(journals: Journals) -> None:
    for lines in journals.values():
        lines.remove(next(line for line in lines if line["kind"] == "step" and line["step"] == 5))


def drop_line_of_a_worker(journals: Journals) -> None:
    journals[1].remove(line_of(journals, 1, 5))


def repeat_cursor(journals: Journals) -> None:
    for rank in journals:
        line_of(journals, rank, 5)["cursor"] = line_of(journals, rank, 4)["cursor"]


def change_words(journals: Journals) -> None:
    line_of(journals, 1, 5)["words"]["target"] += 1


def change_batch(journals: Journals) -> None:
    line_of(journals, 0, 5)["batch"] = "00000000"


def change_epoch(journals: Journals) -> None:
    line_of(journals, 0, 5)["epoch"] = 1


def repeat_step(journals: Journals) -> None:
    journals[1].insert(9, dict(line_of(journals, 1, 5)))


def mix_launches(journals: Journals) -> None:
    line_of(journals, 1, 5)["attempt"] = 2


@pytest.mark.parametrize(
    ("tamper", "expected"),
    [
        (drop_step, "no worker has a line for it"),
        (drop_line_of_a_worker, "worker 1 has no line"),
        (repeat_cursor, "worker 0 was at pass 1, batch 4 after it instead of pass 1, batch 5"),
        (change_words, "all workers together had"),
        (change_batch, "worker 0 had batch 00000000 instead of"),
        (change_epoch, "worker 0 was at pass 2, batch 5 after it instead of pass 1, batch 5"),
        (repeat_step, "worker 1 computed it twice without going back to a checkpoint"),
        (mix_launches, "its lines are of different launches"),
    ],
)
def test_every_kind_of_tampering_is_seen(tamper: Callable[[Journals], None], expected: str) -> None:
    journals = write({}, 1, PASS + 2)
    tamper(journals)
    result = examine(journals)
    assert not result.is_clean
    assert {step for step, _ in result.differences} == {5}
    assert result.differences[0].what.startswith(expected)
    assert "The first is at step 5" in explain(journals)[0]


def test_swapped_passes_are_seen() -> None:
    journals = write({}, 1, 2 * PASS)
    for lines in journals.values():
        steps = [line for line in lines if line["kind"] == "step"]
        for one, other in zip(steps[:PASS], steps[PASS:], strict=False):
            one["batch"], other["batch"] = other["batch"], one["batch"]
    result = examine(journals)
    assert {step for step, _ in result.differences} == set(range(1, 2 * PASS + 1))
    assert [one.never for one in result.passes] == [150, 150]


def test_a_worker_that_resumes_too_late_leaves_a_gap() -> None:
    journals = write({}, 1, 6, stop=None)
    write(journals, 9, 12, attempt=2)
    assert [step for step, _ in examine(journals).differences] == [7, 8]


def test_a_run_that_was_cut_off_may_lack_lines_after_its_last_save() -> None:
    journals = write({}, 1, 9, stop=None)
    journals[0].append({"kind": "checkpoint", "step": 6, "time": 2})
    journals[1].remove(line_of(journals, 1, 9))
    result = examine(journals)
    assert result.is_clean
    assert result.open_steps == 1
    assert any("the run was cut off" in sentence for sentence in explain(journals)[1])
    journals[1].remove(line_of(journals, 1, 6))
    assert [tuple(difference) for difference in examine(journals).differences] == [(6, "worker 1 has no line")]


def test_skipped_steps_do_not_count_as_used() -> None:
    journals = write({}, 1, PASS)
    for rank in journals:
        line_of(journals, rank, 5)["applied"] = False
    result = examine(journals)
    assert result.is_clean
    assert result.passes[0].skipped == len(ORDER.epoch(0)[4])
    verdict, limits = explain(journals)
    assert verdict.startswith("No pair was used twice, but every complete pass has skipped steps")
    assert "1 step with a gradient that was not finite changed nothing" in limits[0]


def test_asynchronous_shares_count_once_whoever_computes_them() -> None:
    journals = write({}, 1, PASS, strategy="server", parts=True)
    moved = line_of(journals, 1, 5)
    journals[1].remove(moved)
    journals[0].insert(7, moved)
    assert examine(journals).is_clean
    assert explain(journals)[1][0].startswith("server async")
    journals[1].insert(7, dict(moved))
    assert [tuple(one) for one in examine(journals).differences] == [(5, "share 1 was computed by 2 workers")]


def test_the_verdict_does_not_promise_what_a_dead_asynchronous_worker_left_open() -> None:
    journals = write({}, 1, PASS, strategy="server", parts=True)
    journals[0].append({"kind": "fault", "what": "recomputed: the worker that had claimed it died", "step": 5})
    verdict, limits = explain(journals)
    assert verdict.startswith("Every one of 150 pairs was journalled exactly once")
    assert "1 share of workers that died" in limits[1]


@pytest.mark.parametrize("strategy", ["replicas", "local"])
def test_strategies_with_several_models_say_what_is_not_proven(strategy: str) -> None:
    verdict, limits = explain(write({}, 1, PASS, strategy=strategy))
    assert verdict.startswith("Every one of 150 pairs")
    assert limits[0].startswith(
        f"{strategy}: every sample was used by one worker, for that worker's own model. Not proven"
    )


def test_a_share_without_a_line_of_an_elastic_worker_that_died_is_named() -> None:
    journals = write({}, 1, PASS, strategy="resilient")
    line = line_of(journals, 1, 5)
    place = journals[1].index(line)
    journals[1][place] = {"kind": "heal", "step": 5, "time": 1}
    assert examine(journals).is_clean
    assert "1 step without the line of a worker that died." in explain(journals)[1]
    del journals[1][place]
    assert [tuple(one) for one in examine(journals).differences] == [(5, "worker 1 has no line")]


def test_steps_that_are_missing_at_the_end_are_seen() -> None:
    journals = write({}, 1, 9, workers=1)
    journals[0].remove(line_of(journals, 0, 9))
    assert [tuple(one) for one in examine(journals).differences] == [(9, "no worker has a line for it")]


def test_damaged_lines_are_counted() -> None:
    journalled = join_workers({0: [None, {"kind": "step", "step": "x"}]})
    assert journalled.damaged == 2
