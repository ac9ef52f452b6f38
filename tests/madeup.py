"""Writes run directories with invented journals, so that a test knows what their report must say."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Phases = Mapping[str, float]
PLAIN: Phases = {"input": 0.0, "forward": 0.040, "backward": 0.050, "merge": 0.005, "update": 0.005}
CONFIG: dict[str, Any] = {
    "data": {"languages": ["en", "de"], "vocabulary": {"size": 1000}},
    "batch": {"words": 1000, "balance": True},
    "model": {"encoder_layers": 1, "decoder_layers": 1, "width": 64, "feed_forward": 128, "dropout": 0.1},
    "train": {"steps": 100, "evaluate_every": 10, "checkpoint_every": 10, "label_smoothing": 0.1},
    "schedule": {"name": "constant", "peak": 0.001, "factor": 2.0, "warmup": 4, "floor": 0.0},
}
DATA: dict[str, Any] = {
    "digest": "d" * 64,
    "languages": ["en", "de"],
    "vocabulary": {"size": 1000},
    "files": [{"set": "train", "path": "text/train.en", "bytes": 5000, "sha256": "a" * 64}],
    "sets": {
        "train": {
            "read": 1010,
            "lines": 1000,
            "source_words": 11000,
            "target_words": 12000,
            "source_plain_words": 9000,
            "target_plain_words": 9500,
            "source_longest": 30,
            "source_lengths": [400, 500, 100],
            "target_lengths": [300, 500, 200],
            "length_step": 10,
            "text_bytes": 2_500_000,
            "removed": {"ratio": 10},
        },
        "validation": {"lines": 50},
    },
}


def constant_phases(rank: int, step: int) -> Phases:
    return PLAIN


def constant_rate(step: int) -> float:
    """Returns the learning rate of the schedule in CONFIG."""
    return 0.001 * min(1.0, step / 4)


def falling_loss(step: int) -> float:
    return 1.5 + 6.0 * step**-0.5


@dataclass
class MadeUp:
    """Writes a run launch by launch. The time stamps advance by the seconds of the steps."""

    folder: Path
    now: float = 1_700_000_000.0
    scope: str = "global"
    bytes_sent: int = 1_000_000
    hosts: list[str] = field(default_factory=lambda: ["here"])

    def __post_init__(self) -> None:
        (self.folder / "journal").mkdir(parents=True, exist_ok=True)
        self.config()
        self.data()

    def config(self, **groups: dict[str, Any]) -> None:
        merged = {name: CONFIG.get(name, {}) | groups.get(name, {}) for name in CONFIG | groups}
        (self.folder / "config.yaml").write_text(yaml.safe_dump(merged))

    def data(self, **facts: Any) -> None:
        (self.folder / "data.json").write_text(json.dumps(DATA | facts))

    def write(self, rank: int, kind: str, **facts: Any) -> None:
        line = {"kind": kind, "time": round(self.now, 3)} | facts
        with (self.folder / "journal" / f"worker-{rank:04d}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def launch(
        self,
        steps: range,
        workers: int = 2,
        attempt: int = 1,
        phases: Callable[[int, int], Phases] = constant_phases,
        loss: Callable[[int], float] = falling_loss,
        scores: Mapping[int, Mapping[str, float]] | None = None,
        resumed: int | None = None,
        stop: str | None = "finished",
        rate: Callable[[int], float] = constant_rate,
        of_step: Mapping[str, Any] | None = None,
        **facts: Any,
    ) -> None:
        """Writes one launch of all workers. `of_step` adds facts to every step line, `facts` to the `run` line."""
        machines = [self.hosts[rank % len(self.hosts)] for rank in range(workers)]
        about = [{"host": host, "device": "cpu", "device_name": "cpu", "cores": 8} for host in machines]
        (self.folder / "environment.json").write_text(json.dumps({"versions": {"torch": "2.13.0"}, "workers": about}))
        (self.folder / "choices.json").write_text(json.dumps({"launches": attempt, "precision": "fp32"}))
        run_line: dict[str, Any] = {
            "workers": workers,
            "strategy": "allreduce" if workers > 1 else "single",
            "precision": "fp32",
        }
        run_line |= {"threads": 1, "metric": "sacrebleu", "higher_is_better": True, "changed": {}, "without": []}
        for rank in range(workers):
            self.write(rank, "run", attempt=attempt, **(run_line | facts))
            if resumed is not None:
                self.write(rank, "resume", step=resumed, checkpoint=f"step-{resumed:08d}", attempt=attempt, reset=[])
        self.now += 2.0
        for step in steps:
            taken = [sum(phases(rank, step).values()) for rank in range(workers)]
            self.now += max(taken)
            own = {"loss": loss(step), "lr": rate(step), "attempt": attempt, "warmup": step - steps.start < 5}
            for rank in range(workers):
                self._step(rank, step, phases(rank, step), workers, **(own | dict(of_step or {})))
            if scores and step in scores:
                self.now += 1.5
            for rank in range(workers) if scores and step in scores else ():
                line = {"step": step, "scores": dict((scores or {})[step]), "signature": "made|up", "seconds": 1.5}
                self.write(rank, "evaluation", **line, best=False, attempt=attempt, examples=[])
        self.now += 1.0
        for rank in range(workers) if stop else ():
            self.write(rank, "stop", reason=stop, step=steps[-1] if steps else 0, signal=None)
        self.now += 60.0

    def _step(self, rank: int, step: int, phases: Phases, workers: int, **own: Any) -> None:
        words = 1000 + step % 7
        self.write(
            rank,
            "step",
            step=step,
            epoch=0,
            grad_norm=1.0,
            words={"source": words // workers, "target": words // workers},
            seconds=sum(phases.values()),
            phases=dict(phases),
            merge_overlapped=0.01,
            bytes_sent=self.bytes_sent if workers > 1 else 0,
            cursor=step,
            scope=self.scope,
            applied=True,
            batch="00",
            global_target_words=words,
            watching=0.0001,
            **own,
        )
