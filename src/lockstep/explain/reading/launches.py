"""The launches of a run: `lockstep train` starts one, and each resume starts another."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from lockstep.explain.formatting import plural
from lockstep.explain.reading.journal_file import get_seconds
from lockstep.explain.reading.steps import Steps
from lockstep.run.journal import Line
from lockstep.run.standing import as_integer


@dataclass
class Launch:
    """From one `run` line of the journal to the next."""

    facts: Line  # the `run` line
    begin: float
    end: float
    first_moment: float | None = None  # when the first step, evaluation or checkpoint began
    first_step: int | None = None
    last_step: int | None = None
    reason: str = ""  # why it stopped; empty when it was killed or still runs
    resumed: int | None = None  # the step of the checkpoint that it resumed from
    settings: dict[str, JsonValue] = field(default_factory=dict)  # of its config, by dotted name

    @property
    def attempt(self) -> int:
        return as_integer(self.facts.get("attempt")) or 1

    @property
    def workers(self) -> int:
        return as_integer(self.facts.get("workers")) or 1

    @property
    def servers(self) -> int:
        return as_integer(self.facts.get("servers")) or 0

    @property
    def strategy(self) -> str:
        return str(self.facts.get("strategy", ""))

    @property
    def is_asynchronous(self) -> bool:
        """Whether workers take shares of a step one by one."""
        return self.strategy == "server" and self.settings.get("strategy.mode") == "async"

    @property
    def strategy_text(self) -> str:
        """The strategy, with mode and number of parameter servers: server async on 1 server."""
        if self.strategy != "server":
            return self.strategy
        mode, servers = str(self.settings.get("strategy.mode", "")), plural(self.servers, "server")
        return f"server {mode}{f' on {servers}' * bool(self.servers)}".rstrip()

    @property
    def comparison_key(self) -> tuple[str, ...]:
        """Equal for two launches whose step times can be averaged together."""
        facts = [self.facts.get(name) for name in ("workers", "servers", "strategy", "precision", "threads")]
        known = {key: value for key, value in self.settings.items() if value is not None}
        settings = sorted((key, value) for key, value in known.items() if key.startswith("strategy."))
        return tuple(map(str, [*facts, *settings]))


def list_launches(events: Iterable[Line], steps: Steps, config: Mapping[str, JsonValue]) -> list[Launch]:
    """Returns the launches in the order of a worker's journal. `steps` are all step lines of that journal, `config` is the
    config of the last launch by dotted names. A worker that restarts within a launch starts no new launch."""
    launches: list[Launch] = []
    for line in events:
        moment = float(line["time"])
        if line["kind"] == "run" and not (launches and launches[-1].facts.get("attempt") == line.get("attempt")):
            launches.append(Launch(line, moment, moment))
        elif launches:
            _add_event(launches[-1], line, moment)
    _add_steps(launches, steps)
    _add_settings(launches, config)
    return launches


def _add_event(launch: Launch, line: Line, moment: float) -> None:
    launch.end = max(launch.end, moment)
    if line["kind"] == "stop":
        launch.reason = str(line.get("reason") or "")
    elif line["kind"] == "resume":
        launch.resumed = as_integer(line.get("step"))
    elif line["kind"] in ("evaluation", "checkpoint"):
        began = moment - get_seconds(line)
        launch.first_moment = min(began, launch.first_moment or began)


def _add_steps(launches: list[Launch], steps: Steps) -> None:
    ends = [*(launch.begin for launch in launches[1:]), math.inf]
    for launch, end in zip(launches, ends, strict=False):
        own = steps.where((steps.time >= launch.begin) & (steps.time < end))
        if len(own):
            began = float(own.time[0] - own.seconds[0])
            launch.first_moment = min(began, launch.first_moment or began)
            launch.end = max(launch.end, float(own.time.max()))
            launch.first_step, launch.last_step = int(own.step.min()), int(own.step.max())


def _add_settings(launches: list[Launch], config: Mapping[str, JsonValue]) -> None:
    """The config file is that of the last launch, and every `run` line names the settings that its launch changed."""
    settings = dict(config)
    for launch in reversed(launches):
        launch.settings = dict(settings)
        changed = launch.facts.get("changed")
        for key, pair in (changed if isinstance(changed, dict) else {}).items():
            if isinstance(pair, list | tuple) and len(pair) == 2:
                settings[key] = pair[0]
