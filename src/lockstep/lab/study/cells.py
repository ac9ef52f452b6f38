"""What a study measures: a cell for every combination of workers, strategy, link and batch, and the rows that they are
held against: one worker alone, independent replicas, runs without input and without communication."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.lab.emulated_network import check_able, rate_bits

ALONE, YARDSTICK = "alone", "replicas"
NO_LINK = "none"
EVERY = 10
"""Steps between two synchronizations of `local`, unless the word or the config says: the default depends on train.steps."""


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
        return "-".join(str(value).replace(":", "-").replace("=", "-") for value in asdict(self).values())

    @property
    def name(self) -> str:
        """Of the strategy, without its settings."""
        return self.strategy.partition(":")[0]

    @property
    def trained(self) -> str:
        """The `strategy.name` of its trials."""
        return "auto" if self.strategy == ALONE else self.name

    @property
    def label(self) -> str:
        """For a person; link and batch are said elsewhere where there is only one."""
        without = {"input": ", no input", "communication": ", no exchange"}.get(self.without, "")
        if self.strategy == ALONE:
            return f"1 alone{without}"
        link = "" if self.link == NO_LINK else f" over {self.link}"
        return f"{self.workers} {spoken(self.strategy)}{link}{without}"

    @property
    def servers(self) -> int:
        return int(_settings(self.strategy).get("servers", "0"))

    def overrides(self, unit: str) -> list[str]:
        """The settings of its trials; `unit` is what batches are counted in: words, sentences or images."""
        own = _settings(self.strategy)
        if self.name == "server":
            own["servers"] = str(self.servers)  # also 0, where the config says another number
        more = [f"strategy.{key}={value}" for key, value in own.items()]
        return [f"batch.{unit}={self.batch}", "batch.per=worker", f"strategy.name={self.trained}", *more]


@dataclass(frozen=True)
class Matrix:
    """All that is varied, and how it is measured."""

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
    def first(self) -> str:
        """The strategy whose runs without input and without communication are measured."""
        return next((one for one in self.strategies if one != YARDSTICK), YARDSTICK)

    def cells(self) -> list[Cell]:
        """One worker has nobody to exchange anything with: it is measured once, whatever the strategies and links."""
        found: list[Cell] = []
        for batch in self.batches:
            found += [Cell(1, ALONE, NO_LINK, batch, without) for without in ("nothing", "input")]
            for workers in (count for count in self.workers if count > 1):
                found.append(Cell(workers, YARDSTICK, NO_LINK, batch))
                for link in self.links:
                    found += [Cell(workers, one, link, batch) for one in self.strategies if one != YARDSTICK]
                found.append(Cell(workers, self.first, self.links[0], batch, "input"))
                if self.first != YARDSTICK:
                    found.append(Cell(workers, self.first, NO_LINK, batch, "communication"))
        return found

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Matrix":
        values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in facts.items()}
        return cls(**values)

    def facts(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def spoken(strategy: str) -> str:
    """For a person: `server, mode async`."""
    return strategy.replace(":", ", ").replace("=", " ")


def strategy_name(word: str) -> str:
    """The strategy of a word such as `local:every=10`."""
    name = word.partition(":")[0]
    if name in ("auto", "single", ALONE):
        raise LockstepError(f"{name!r} is not a strategy of several workers.", "Use allreduce, for example.", code=2)
    return name


def strategy_word(word: str, config: RunConfig, servers: int | None, steps: int) -> str:
    """Returns the word with the number of servers and of the steps between two synchronizations, which may come from the
    config. `config` is the one for the word's strategy."""
    name, given, kept = strategy_name(word), _settings(word), config.strategy
    if name == "server" and "servers" not in given:
        count = servers if servers is not None else kept.servers if kept.name == "server" else 0
        word += f":servers={count}" if count else ""
    if name == "local":
        configured = kept.every if kept.name == "local" else None
        every = given.get("every", str(configured or EVERY))
        if not every.isdigit() or not int(every) or steps % int(every):
            raise LockstepError(
                f"{word} synchronizes every {every} steps, and {steps} measured steps are not a multiple of it.",
                f"Measure with --steps {every}, or write local:every={steps}.",
                code=2,
            )
        word += "" if "every" in given else f":every={every}"
    return word


def _settings(word: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in word.split(":")[1:]]
    for key, equals, value in pairs:
        if not (key and equals and value) or (key == "servers" and not value.isdigit()):
            raise LockstepError(
                f"The strategy {word!r} cannot be read.",
                "Write it as allreduce or as allreduce:gradients=bf16.",
                code=2,
            )
    return {key: value for key, _, value in pairs}


def check_links(links: Sequence[str], strategies: Sequence[str]) -> None:
    emulated = [link for link in links if link != NO_LINK]
    for link in emulated:
        rate_bits(link)
    if emulated:
        check_able()
    if emulated and any(one.startswith("resilient") for one in strategies):
        raise LockstepError("The strategy resilient cannot be measured over emulated links.", "Leave one out.", code=2)
