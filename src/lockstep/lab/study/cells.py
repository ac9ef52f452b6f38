"""The cells of a study: a cell for every combination of workers, strategy, link and batch, and the cells to compare with.
These are one worker alone, independent replicas, and ablations without input and without communication."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict

from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.lab.emulated_network import check_can_emulate, parse_rate

ALONE, REPLICAS = "alone", "replicas"
NO_LINK = "none"
EVERY = 10
"""Steps between two synchronizations of `local`, unless the strategy or the config sets them: the default of training
depends on train.steps."""


class CellFacts(TypedDict):
    """A cell as it is stored."""

    workers: int
    strategy: str
    link: str
    batch: int
    without: str


@dataclass(frozen=True)
class Cell:
    """One setting. A strategy is written NAME or NAME:setting=value:..., as in `allreduce:gradients=bf16`."""

    workers: int
    strategy: str
    link: str
    batch: int  # of one worker
    without: str = "nothing"

    @property
    def key(self) -> str:
        """A name for the folder of a trial."""
        return "-".join(str(value).replace(":", "-").replace("=", "-") for value in asdict(self).values())

    @property
    def strategy_name(self) -> str:
        """The strategy without its settings."""
        return self.strategy.partition(":")[0]

    @property
    def trial_strategy(self) -> str:
        """The `strategy.name` of its trials."""
        return "auto" if self.strategy == ALONE else self.strategy_name

    @property
    def label(self) -> str:
        """The name of the cell in tables and charts, without the batch."""
        without = {"input": ", no input", "communication": ", no exchange"}.get(self.without, "")
        if self.strategy == ALONE:
            return f"1 alone{without}"
        link = "" if self.link == NO_LINK else f" over {self.link}"
        return f"{self.workers} {describe_strategy(self.strategy)}{link}{without}"

    @property
    def servers(self) -> int:
        return int(_parse_settings(self.strategy).get("servers", "0"))

    def list_overrides(self, unit: str) -> list[str]:
        """Returns the settings of its trials. `unit` is what batches are counted in: words, sentences or images."""
        settings = _parse_settings(self.strategy)
        if self.strategy_name == "server":
            settings["servers"] = str(self.servers)  # also 0, because the config may have another number
        batch = [f"batch.{unit}={self.batch}", "batch.per=worker"]
        own = [f"strategy.{key}={value}" for key, value in settings.items()]
        return [*batch, f"strategy.name={self.trial_strategy}", *own]


class MatrixFacts(TypedDict):
    """A matrix as it is stored."""

    workers: list[int]
    strategies: list[str]
    links: list[str]
    batches: list[int]
    unit: str
    steps: int
    warmup: int
    rounds: int
    threads: int


@dataclass(frozen=True)
class Matrix:
    """What a study varies, and how it measures."""

    workers: tuple[int, ...]
    strategies: tuple[str, ...]
    links: tuple[str, ...]
    batches: tuple[int, ...]
    unit: str  # of the batch: words, sentences or images
    steps: int
    warmup: int
    rounds: int
    threads: int

    @property
    def ablated_strategy(self) -> str:
        """The strategy that is also measured without input and without communication."""
        return next((strategy for strategy in self.strategies if strategy != REPLICAS), REPLICAS)

    def list_cells(self) -> list[Cell]:
        """One worker exchanges nothing, so it is measured once for all strategies and links."""
        cells: list[Cell] = []
        for batch in self.batches:
            cells += [Cell(1, ALONE, NO_LINK, batch, without) for without in ("nothing", "input")]
            for workers in (count for count in self.workers if count > 1):
                cells.append(Cell(workers, REPLICAS, NO_LINK, batch))
                for link in self.links:
                    cells += [Cell(workers, name, link, batch) for name in self.strategies if name != REPLICAS]
                cells.append(Cell(workers, self.ablated_strategy, self.links[0], batch, "input"))
                if self.ablated_strategy != REPLICAS:
                    cells.append(Cell(workers, self.ablated_strategy, NO_LINK, batch, "communication"))
        return cells

    @classmethod
    def from_dict(cls, facts: MatrixFacts) -> "Matrix":
        return cls(
            workers=tuple(facts["workers"]),
            strategies=tuple(facts["strategies"]),
            links=tuple(facts["links"]),
            batches=tuple(facts["batches"]),
            unit=facts["unit"],
            steps=facts["steps"],
            warmup=facts["warmup"],
            rounds=facts["rounds"],
            threads=facts["threads"],
        )

    def as_dict(self) -> MatrixFacts:
        return {
            "workers": list(self.workers),
            "strategies": list(self.strategies),
            "links": list(self.links),
            "batches": list(self.batches),
            "unit": self.unit,
            "steps": self.steps,
            "warmup": self.warmup,
            "rounds": self.rounds,
            "threads": self.threads,
        }


def describe_strategy(strategy: str) -> str:
    """Returns `server, mode async` for `server:mode=async`."""
    return strategy.replace(":", ", ").replace("=", " ")


def parse_strategy_name(strategy: str) -> str:
    """Returns `local` for `local:every=10`."""
    name = strategy.partition(":")[0]
    if name in ("auto", "single", ALONE):
        raise LockstepError(f"{name!r} is not a strategy of several workers.", "Use allreduce, for example.", code=2)
    return name


def complete_strategy(strategy: str, config: RunConfig, servers: int | None, steps: int) -> str:
    """Returns the strategy with the number of servers, or of steps between two synchronizations, from the config where it
    has none. `config` is the one for this strategy."""
    name, settings, configured = parse_strategy_name(strategy), _parse_settings(strategy), config.strategy
    if name == "server" and "servers" not in settings:
        count = servers if servers is not None else configured.servers if configured.name == "server" else 0
        strategy += f":servers={count}" if count else ""
    if name == "local":
        default = (configured.every if configured.name == "local" else None) or EVERY
        every = settings.get("every", str(default))
        if not every.isdigit() or not int(every) or steps % int(every):
            raise LockstepError(
                f"{strategy} synchronizes every {every} steps, and {steps} measured steps are not a multiple of it.",
                f"Measure with --steps {every}, or write local:every={steps}.",
                code=2,
            )
        strategy += "" if "every" in settings else f":every={every}"
    return strategy


def _parse_settings(strategy: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in strategy.split(":")[1:]]
    for key, equals, value in pairs:
        if not (key and equals and value) or (key == "servers" and not value.isdigit()):
            raise LockstepError(
                f"The strategy {strategy!r} cannot be read.",
                "Write it as allreduce or as allreduce:gradients=bf16.",
                code=2,
            )
    return {key: value for key, _, value in pairs}


def check_links(links: Sequence[str], strategies: Sequence[str]) -> None:
    """Raises a LockstepError for links that are no rates or cannot be emulated here."""
    emulated = [link for link in links if link != NO_LINK]
    for link in emulated:
        parse_rate(link)
    if emulated:
        check_can_emulate()
    if emulated and any(strategy.startswith("resilient") for strategy in strategies):
        raise LockstepError(
            "The strategy resilient cannot be measured over emulated links.",
            "Leave resilient out, or use --links none.",
            code=2,
        )
