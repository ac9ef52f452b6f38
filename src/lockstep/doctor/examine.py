"""Examines the machines of a launch through their agents, all at once where they do not disturb each other."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import JsonValue, TypeAdapter

from lockstep.doctor.compare_machines import (
    Examined,
    compare_clocks,
    compare_corpora,
    compare_devices,
    compare_versions,
    judge_memory,
    judge_rates,
    judge_threads,
)
from lockstep.doctor.finding import Finding, Level, passed, skipped
from lockstep.doctor.judge_disks import DiskFacts, judge_disks, judge_sharing
from lockstep.doctor.judge_network import (
    Connection,
    UsedInterface,
    choose_interface,
    describe_interfaces,
    explain_error,
    judge_connections,
)
from lockstep.errors import LockstepError
from lockstep.hosts.agent_channel import AgentChannel, ask_all
from lockstep.hosts.connections import MOST_SECONDS
from lockstep.hosts.machine_report import MachineReport

T = TypeVar("T")
FACTS, DISK = TypeAdapter(MachineReport), TypeAdapter(DiskFacts)
RATES, ANSWER = TypeAdapter(list[float]), TypeAdapter(dict[str, JsonValue])
RATE_SECONDS = 100.0
"""A worker with a small share of a busy core needs long to import torch, and is to be named for its speed."""
MOST_PAIRS = 60
"""With more machines every one is connected with the first one and its two neighbours only."""


@dataclass(frozen=True)
class PlannedLaunch:
    """What is to be examined."""

    names: tuple[str, ...]  # of the machines, the first worker's first
    slots: tuple[int, ...]  # workers of each
    addresses: tuple[str, ...]  # under which the others reach each
    run: str  # folder or address
    corpus: str | None = None
    interface: str | None = None
    port: int = 29400  # of the rendezvous
    quick: bool = False
    is_brief: bool = False  # a launch follows: only what takes no time, and no folders, which it fills itself


class Examination:
    """The examination of a launch. Findings come as soon as they are known."""

    def __init__(
        self, launch: PlannedLaunch, channels: Sequence[AgentChannel], tell: Callable[[Finding], None]
    ) -> None:
        self.launch, self.channels, self._tell = launch, channels, tell
        self.findings: list[Finding] = []
        self.machines: list[Examined] = []
        self._token = secrets.token_hex(8)

    def _add(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self.findings.append(finding)
            self._tell(finding)

    def run(self) -> list[Finding]:
        """Examines everything; returns what was found."""
        machines = self.machines = self._read_machines()
        if len(machines) < len(self.channels):
            return self.findings
        for judge in (compare_versions, compare_clocks, compare_devices, judge_threads, judge_memory):
            self._add(judge(machines))
        self._add(compare_corpora(machines, self.launch.corpus))
        self._examine_network(machines)
        if "://" in self.launch.run or not self.launch.is_brief:
            self._examine_run_folder()
        if self.launch.is_brief:
            sentence = "The speed of connections, disks and workers was not measured. `lockstep doctor` does it."
            self._add([skipped("speed", sentence)])
        elif self.launch.quick:
            self._add([skipped("speed", "Each worker's speed was not measured.")])
        else:
            self._examine_speed(machines)
        return self.findings

    def _ask(
        self,
        action: str,
        check: str,
        seconds: float,
        arguments: Sequence[Mapping[str, JsonValue]],
        shape: TypeAdapter[T],
    ) -> dict[str, T]:
        """Asks all machines; returns their answers by name. Errors become findings."""
        answers: dict[str, T] = {}
        for name, answer in zip(self.launch.names, ask_all(self.channels, action, seconds, arguments), strict=True):
            if isinstance(answer, LockstepError):
                self._add([Finding(Level.FAIL, check, name, f"{name}: {answer.message}", answer.remedy)])
            else:
                answers[name] = shape.validate_python(answer)
        return answers

    def _read_machines(self) -> list[Examined]:
        launch = self.launch
        offsets: list[tuple[float, float]] = []
        machines = []
        for (
            channel
        ) in self.channels:  # one after the other: an answer that waits for another one makes the clock uncertain
            try:
                channel.ask("clock")
                before = time.time()
                clock = float(str(channel.ask("clock")))
                after = time.time()
            except LockstepError as error:
                self._add(
                    [Finding(Level.FAIL, "machine", channel.name, f"{channel.name}: {error.message}", error.remedy)]
                )
                return []
            offsets.append((clock - (before + after) / 2, (after - before) / 2))
        facts = self._ask(
            "facts", "machine", 30, [{"first": launch.addresses[0], "corpus": launch.corpus}] * len(offsets), FACTS
        )
        for name, slots, offset in zip(launch.names, launch.slots, offsets, strict=True):
            if name in facts:
                machines.append(Examined(name, slots, facts[name], *offset))
        return machines

    def _examine_network(self, machines: Sequence[Examined]) -> None:
        several = len(machines) > 1
        chosen: dict[str, UsedInterface] = {}
        for machine in machines:
            interface = choose_interface(machine, self.launch.interface, several)
            if isinstance(interface, Finding):
                self._add([interface])
            else:
                chosen[machine.name] = interface
        if not several:
            self._add([passed("network", "One machine: no network is needed.")])
            return
        if len(chosen) == len(machines):
            self._add([describe_interfaces(chosen)])
        channels = {channel.name: channel for channel in self.channels}
        connections = [
            self._connect(channels[source], channels[target], chosen[target].address, port)
            for source, target, port in list_pairs(list(chosen), self.launch.port)
        ]
        self._add(judge_connections(connections))

    def _connect(self, source: AgentChannel, target: AgentChannel, address: str, port: int) -> Connection:
        """Has one machine connect to another one, at a port of the rendezvous or any free one."""
        purpose, place = ("the rendezvous", f"{address}:{port}") if port else ("exchanges", address)
        try:
            listener = ANSWER.validate_python(target.ask("listen", address=address, port=port))
        except LockstepError as error:
            why = f"it cannot listen there: {error.message.rstrip('.')}"
            return Connection(source.name, target.name, place, purpose, error=why)
        place = f"{address}:{listener['port']}"
        try:
            most = 0.0 if self.launch.is_brief else MOST_SECONDS
            answer = source.ask(
                "connect", address=address, port=listener["port"], token=listener["token"], most_seconds=most
            )
        except LockstepError as error:
            return Connection(source.name, target.name, place, purpose, error=explain_error(error))
        figures = ANSWER.validate_python(answer)
        seconds, rate = (float(str(figures[key])) for key in ("seconds", "bits_per_second"))
        return Connection(source.name, target.name, place, purpose, seconds, rate)

    def _examine_run_folder(self) -> None:
        launch, count = self.launch, len(self.channels)
        if "://" in launch.run:
            answers = self._ask("store", "run folder", 60, [{"url": launch.run, "token": self._token}] * count, ANY)
            if len(answers) == count:
                self._add([passed("run folder", f"All machines can write to {launch.run}.")])
            return
        disks = self._ask(
            "disk",
            "disk",
            60,
            [{"folder": launch.run, "token": f"{self._token}-{number}"} for number in range(count)],
            DISK,
        )
        if not disks:
            return
        self._add(judge_disks(disks))
        first, *others = self.channels
        if first.name in disks:
            arguments = {"folder": disks[first.name].folder, "token": f"{self._token}-0"}
            seen = ask_all(others, "look", 30, [arguments] * len(others))
            self._add(
                judge_sharing(first.name, {one.name: sees is True for one, sees in zip(others, seen, strict=True)})
            )
        for number, channel in enumerate(self.channels):
            if channel.name in disks:
                channel.ask("remove", folder=disks[channel.name].folder, token=f"{self._token}-{number}")

    def _examine_speed(self, machines: Sequence[Examined]) -> None:
        arguments: list[Mapping[str, JsonValue]] = []
        for machine in machines:
            threads = machine.facts.threads or max(1, machine.facts.cores // machine.slots)
            arguments.append({"workers": machine.slots, "threads": threads})
        rates = self._ask("rate", "speed", RATE_SECONDS, arguments, RATES)
        if len(rates) == len(machines):
            self._add(judge_rates(rates))


ANY: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def list_pairs(names: Sequence[str], port: int) -> list[tuple[str, str, int]]:
    """Returns which machine connects to which one, and where: all to the first one's rendezvous, and all to each other, as
    long as they are not too many."""
    first, *others = names
    pairs = [(other, first, port) for other in others]
    if len(names) * (len(names) - 1) <= MOST_PAIRS:
        return pairs + [(one, other, 0) for one in names for other in names if one != other]
    ring = [*zip(names, [*others, first], strict=True)]
    return pairs + [(one, other, 0) for pair in ring for one, other in (pair, pair[::-1])]
