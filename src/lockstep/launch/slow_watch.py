"""Names a worker that is alive and persistently slower than the others, with what it costs and why.

Workers write how many seconds they have worked (`heartbeat.WorkDone`). A worker is slow if its steps take 15 % longer than
those of the others in three windows in a row, also for each word. The windows are long and their steps are compared by
medians, so that no pause and no evaluation makes a worker slow.
"""

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import mean, median

from lockstep.heartbeat import WorkDone
from lockstep.launch.processor_use import ProcessorUse

SLOWER = 1.15
WINDOW_SECONDS, WINDOW_STEPS = 20.0, 30
WINDOWS = 3
"""A worker is slow after so many slow windows in a row, and fast again after two that are not."""
QUEUED = 0.1
"""If the others wait for a core in more than this share of their time, the whole machine is overloaded, and no worker is
to blame for what that does to it."""
LIKELY = 0.5
"""What explains this share of the lost time is called its cause."""


THROTTLED, WAITS_FOR_INPUT = "its cgroup throttles it", "it waits for its input"
OWN_CAUSES = (THROTTLED, WAITS_FOR_INPUT)
"""Causes that other programs on the machine do not have."""


@dataclass(frozen=True)
class SlowWorker:
    """`share` is the part of the time in which the others waited for it, over all its slow windows so far."""

    rank: int
    since: float  # of the machine's monotonic clock
    slower: float  # 0.5: its steps took half as long again
    share: float
    cause: str
    evidence: str
    sentence: str


@dataclass(frozen=True)
class Look:
    """One worker at one moment."""

    work: WorkDone
    use: ProcessorUse


@dataclass
class _Window:
    """Looks of one worker, and the mean step between each two of them."""

    first: Look
    last: Look
    seconds: list[float] = field(default_factory=list)

    def add(self, look: Look) -> None:
        steps = look.work.steps - self.last.work.steps
        if steps > 0:
            self.seconds.append((look.work.seconds - self.last.work.seconds) / steps)
            self.last = look

    @property
    def steps(self) -> int:
        return self.last.work.steps - self.first.work.steps

    def measure(self) -> "_Measure":
        work, before, steps = self.last.work, self.first.work, self.steps
        use = self.last.use.since(self.first.use)
        return _Measure(
            seconds=median(self.seconds),
            words=(work.words - before.words) / steps,
            input=(work.input_seconds - before.input_seconds) / steps,
            throttled=use.throttled_seconds / steps,
            queued=use.queued_seconds / steps,
            computed=use.cpu_seconds / steps,
        )


@dataclass(frozen=True)
class _Measure:
    """One worker's mean step: seconds of work, its words, and where seconds went."""

    seconds: float
    words: float
    input: float
    throttled: float
    queued: float  # waiting for a core
    computed: float  # processor time


class SlowWatch:
    """Compares the workers of one launch, which take their steps together."""

    def __init__(self) -> None:
        self._windows: dict[int, _Window] = {}
        self._begin = 0.0
        self._slow_since: dict[int, float] = {}  # when the first of its slow windows in a row began
        self._slow_windows: dict[int, int] = defaultdict(int)
        self._fast_windows: dict[int, int] = defaultdict(int)
        self._shares: dict[int, list[float]] = defaultdict(list)  # of its slow windows
        self.named: dict[int, SlowWorker] = {}

    def check(self, looks: Mapping[int, Look], now: float | None = None) -> tuple[list[SlowWorker], list[SlowWorker]]:
        """Takes a look at all workers, once a second or so. Returns those that are slow since this look, and those that are
        slow no longer."""
        now = time.monotonic() if now is None else now
        if len(looks) < 2 or looks.keys() != self._windows.keys():
            self._start(looks, now)
            return [], []
        for rank, look in looks.items():
            self._windows[rank].add(look)
        if now - self._begin < WINDOW_SECONDS or min(window.steps for window in self._windows.values()) < WINDOW_STEPS:
            return [], []
        measures = {rank: window.measure() for rank, window in self._windows.items()}
        step_seconds = (now - self._begin) / max(window.steps for window in self._windows.values())
        begin = self._begin
        self._start(looks, now)
        judged = [self._judge(rank, measures, step_seconds, begin, now) for rank in measures]
        return [worker for worker, _ in judged if worker], [worker for _, worker in judged if worker]

    def _start(self, looks: Mapping[int, Look], now: float) -> None:
        self._windows = {rank: _Window(look, look) for rank, look in looks.items()}
        self._begin = now

    def _judge(
        self, rank: int, measures: Mapping[int, _Measure], step_seconds: float, begin: float, now: float
    ) -> tuple[SlowWorker | None, SlowWorker | None]:
        """Returns this worker if it has become slow in this window, and if it has become fast."""
        others = [measure for other, measure in measures.items() if other != rank]
        own, usual = measures[rank], median(other.seconds for other in others)
        words = median(other.words for other in others)
        has_more_words = own.words > 0 and own.seconds / own.words < SLOWER * usual / words
        if own.seconds < SLOWER * usual or has_more_words or _suffers_with_all(own, others):
            return None, self._note_fast(rank)
        self._slow_since.setdefault(rank, begin)
        self._slow_windows[rank] += 1
        self._fast_windows[rank] = 0
        self._shares[rank].append(min(1.0, (own.seconds - usual) / step_seconds))
        share = mean(self._shares[rank])
        if rank in self.named:
            self.named[rank] = replace(self.named[rank], share=share)
        elif self._slow_windows[rank] >= WINDOWS:
            self.named[rank] = _describe(rank, self._slow_since[rank], now, own.seconds / usual - 1, share, own, others)
            return self.named[rank], None
        return None, None

    def _note_fast(self, rank: int) -> SlowWorker | None:
        self._slow_windows[rank] = 0
        self._fast_windows[rank] += 1
        if rank in self.named and self._fast_windows[rank] < 2:
            return None
        self._slow_since.pop(rank, None)
        self._shares.pop(rank, None)
        return self.named.pop(rank, None)


def _describe(
    rank: int, since: float, now: float, slower: float, share: float, own: _Measure, others: list[_Measure]
) -> SlowWorker:
    evidence, cause = _find_cause(own, others)
    sentence = (
        f"Worker {rank} has been {100 * slower:.0f} % slower than the others for {now - since:.0f} s, which costs "
        f"{100 * share:.0f} % of the time: {cause} ({evidence})."
    )
    return SlowWorker(rank, since, slower, share, cause, evidence, sentence)


def _suffers_with_all(own: _Measure, others: list[_Measure]) -> bool:
    """Is the machine overloaded, and no reason seen why this worker is slow that is its own?"""
    queued, usual = median(other.queued for other in others), median(other.seconds for other in others)
    return queued > QUEUED * usual and _find_cause(own, others)[1] not in OWN_CAUSES


def _find_cause(own: _Measure, others: list[_Measure]) -> tuple[str, str]:
    """Returns the evidence and the likely cause: what explains most of the seconds by which this worker is slower."""
    lost = own.seconds - median(other.seconds for other in others)

    def explains(name: str) -> bool:
        usual = median(float(getattr(other, name)) for other in others)
        return float(getattr(own, name)) - usual >= LIKELY * lost

    if explains("throttled"):
        return "established", THROTTLED
    if explains("input"):
        return "supported", WAITS_FOR_INPUT
    if explains("queued"):
        return "supported", "other programs use its cores"
    if explains("computed"):
        return "supported", "its cores do less per second (a lower frequency, or a neighbour on the machine)"
    return "unknown", "nothing that was seen explains it"
