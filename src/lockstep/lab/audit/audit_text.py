"""The audit in words: the verdict, and what the journal of each strategy does not prove."""

from lockstep.explain.formatting import count, plural
from lockstep.lab.audit.compare_order import Audit
from lockstep.lab.audit.share_lines import JournalledShares

NOUNS = {"words": "pair", "images": "image"}
"""What a sample is called, by the unit that a task counts in."""
REPLICAS = (
    "replicas: every sample was used by one worker, for that worker's own model. Not proven, because it is not so: that "
    "all of them changed the run's model, which is worker 0's and has used only its own shares."
)
LOCAL = (
    "local: every sample was used by one worker, for that worker's own model. Not proven: how much of it reached the "
    "common model, because the journal does not record what a synchronization merged."
)
ASYNCHRONOUS = (
    "server async: every share of every batch was journalled once. Not proven: in which order the servers applied the "
    "shares, and whether one that a worker computed before it died had reached them already."
)
RESILIENT = (
    "resilient: every step used one global batch. A worker that dies after an update and before its line leaves its share "
    "without a line; the step counts because the survivors' update needs all shares."
)


def write_verdict(audit: Audit, journalled: JournalledShares, unit: str) -> str:
    """Returns the result in one or two sentences."""
    noun = NOUNS.get(unit, "sample")
    work = f"{plural(journalled.interruptions, 'interruption')}, {_describe_undone(journalled)} computed again."
    if not audit.is_clean:
        number, first = plural(len(audit.differences), "difference"), audit.differences[0]
        return f"{number} between journal and data. The first is at step {count(first.step)}: {first.what}. {work}"
    parts = [f"{_describe_passes(audit, journalled, noun)}; {work}"]
    if audit.passes and not audit.passes[-1].is_complete:
        last = audit.passes[-1]
        parts.append(f"Pass {count(last.number)} has used {plural(last.once, noun)}, each once.")
    return " ".join(parts)


def _describe_passes(audit: Audit, journalled: JournalledShares, noun: str) -> str:
    """Says of how many passes it is proven that they used every sample. A share that was computed again may have reached a
    server before its first worker died: then the journal proves less."""
    complete, clean = len(audit.complete_passes), sum(not one.skipped for one in audit.complete_passes)
    if not complete:
        return f"No pass over {plural(audit.samples, noun)} is complete"
    if not clean:
        return f"No {noun} was used twice, but every complete pass has skipped steps"
    where = "in the complete pass" if complete == 1 else f"in each of {count(complete)} complete passes"
    if clean < complete:
        where = f"in {count(clean)} of {count(complete)} complete passes; the others have skipped steps"
    verb = "journalled" if journalled.recomputed else "used"
    return f"Every one of {plural(audit.samples, noun)} was {verb} exactly once {where}"


def _describe_undone(journalled: JournalledShares) -> str:
    return plural(journalled.undone, "share" if journalled.is_asynchronous else "step")


def list_limits(audit: Audit, journalled: JournalledShares) -> list[str]:
    """Returns a sentence for everything that the audit does not prove, or that a reader must know about it."""
    attempts = {share.attempt for shares in journalled.by_step.values() for share in shares}
    strategies = {launch.strategy for attempt, launch in journalled.launches.items() if attempt in attempts}
    known = {"replicas": REPLICAS, "local": LOCAL, "resilient": RESILIENT}
    limits = [sentence for name, sentence in known.items() if name in strategies]
    limits += [ASYNCHRONOUS] if journalled.is_asynchronous else []
    if journalled.recomputed:
        limits.append(f"{plural(journalled.recomputed, 'share')} of workers that died were computed again by worker 0.")
    if audit.partial_steps:
        limits.append(f"{plural(audit.partial_steps, 'step')} without the line of a worker that died.")
    if audit.skipped_steps:
        skipped = sum(one.skipped for one in audit.passes)
        limits.append(
            f"{plural(audit.skipped_steps, 'step')} with a gradient that was not finite changed nothing: their "
            f"{count(skipped)} samples were passed over."
        )
    if audit.open_steps:
        limits.append(
            f"{plural(audit.open_steps, 'step')} at the end without the line of a worker: the run was cut off, and its "
            "next launch repeats what was not saved."
        )
    if journalled.damaged:
        limits.append(f"{plural(journalled.damaged, 'line')} of the journal cannot be read.")
    return limits
