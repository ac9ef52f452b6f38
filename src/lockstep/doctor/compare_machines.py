"""What machines say about themselves, compared: versions, clocks, cores and threads, memory, GPUs, corpora."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.doctor.finding import Finding, Level, list_names, passed
from lockstep.hosts.machine_report import BF16_FLAGS, MachineReport

CLOCK_WARN_SECONDS, CLOCK_FAIL_SECONDS = 1.0, 30.0
VERSIONS = ("python", "torch", "lockstep", "code")
LABELS = {"python": "Python", "torch": "torch", "lockstep": "Lockstep", "code": "Lockstep's code, digest"}
LEAST_MEMORY = 1_000_000_000
"""Bytes that a worker takes at least: torch alone has a quarter of it."""


@dataclass(frozen=True)
class Examined:
    """A machine, and what it says about itself."""

    name: str
    slots: int  # workers
    facts: MachineReport
    clock_offset: float = 0.0  # seconds ahead of the examining machine
    clock_error: float = 0.0  # at most so far off


def compare_versions(machines: Sequence[Examined]) -> list[Finding]:
    """The same versions and the same code everywhere: workers that differ would compute different things, or hang."""
    findings = []
    for key in VERSIONS:
        values = {machine.name: str(getattr(machine.facts, key)) for machine in machines}
        counts = Counter(values.values())
        usual = max(counts, key=lambda value: (counts[value], value == values[machines[0].name]))
        for name, value in values.items():
            if value != usual:
                others = list_names(other for other, own in values.items() if own == usual)
                findings.append(
                    Finding(
                        Level.WARN if key == "python" else Level.FAIL,
                        "versions",
                        name,
                        f"{name} has {LABELS[key]} {value}; {others} {usual}.",
                        "Install the same on all machines.",
                    )
                )
    if any(machine.facts.torch == "none" for machine in machines):
        names = [machine.name for machine in machines if machine.facts.torch == "none"]
        sentence, remedy = f"torch is missing on {list_names(names)}.", "pip install 'lockstep-train[train]'"
        findings.append(Finding(Level.FAIL, "versions", names[0], sentence, remedy))
    if findings:
        return findings
    facts = machines[0].facts
    return [passed("versions", f"Python {facts.python}, torch {facts.torch}, Lockstep {facts.lockstep} everywhere.")]


def compare_clocks(machines: Sequence[Examined]) -> list[Finding]:
    """Times in journals, leases and logs are compared over machines."""
    first, *others = machines
    findings = []
    for machine in others:
        ahead = machine.clock_offset - first.clock_offset
        error = machine.clock_error + first.clock_error
        if abs(ahead) - error > CLOCK_WARN_SECONDS:
            direction = "ahead of" if ahead > 0 else "behind"
            findings.append(
                Finding(
                    Level.FAIL if abs(ahead) > CLOCK_FAIL_SECONDS else Level.WARN,
                    "clock",
                    machine.name,
                    f"The clock of {machine.name} is {abs(ahead):,.1f} s {direction} that of {first.name}.",
                    "Let chrony or systemd-timesyncd set it.",
                )
            )
    if findings or not others:
        return findings
    return [passed("clock", f"All clocks agree within {CLOCK_WARN_SECONDS:.0f} s.")]


def judge_threads(machines: Sequence[Examined]) -> list[Finding]:
    """More threads than cores make every product wait for threads that have no core."""
    findings, granted = [], []
    for machine in machines:
        facts = machine.facts
        cores = min(facts.cores, facts.quota or facts.cores)
        threads = facts.threads or max(1, facts.cores // machine.slots)
        granted.append(
            f"{machine.name} {_count(machine.slots, 'worker')} x {_count(threads, 'thread')} on {cores:g} cores"
        )
        if threads * machine.slots <= cores * 1.05:
            continue
        why = f"OMP_NUM_THREADS={threads}" if facts.threads else f"{threads} for {facts.cores} cores"
        limit = "its control group grants" if facts.quota and facts.quota < facts.cores else "it has"
        best = max(1, int(cores // machine.slots))
        findings.append(
            Finding(
                Level.FAIL if threads * machine.slots > 2 * cores else Level.WARN,
                "threads",
                machine.name,
                f"{machine.name} would run {threads * machine.slots} threads ({why}, {_count(machine.slots, 'worker')}), "
                f"but {limit} {cores:g} cores.",
                f"Set train.threads={best}, start fewer workers there, or raise the limit.",
            )
        )
    return findings or [passed("threads", f"{'; '.join(granted)}.")]


def judge_memory(machines: Sequence[Examined]) -> list[Finding]:
    findings = []
    for machine in machines:
        free, needed = machine.facts.free_memory, LEAST_MEMORY * machine.slots
        if free < needed:
            findings.append(
                Finding(
                    Level.WARN,
                    "memory",
                    machine.name,
                    f"{machine.name} has {_gigabytes(free)} free for {_count(machine.slots, 'worker')}.",
                    "End other programs, or start fewer workers there.",
                )
            )
    least = min(machine.facts.free_memory / machine.slots for machine in machines)
    return findings or [passed("memory", f"At least {_gigabytes(least)} free for each worker.")]


def compare_devices(machines: Sequence[Examined]) -> list[Finding]:
    """Workers of one launch need the same kind of device, and precision follows the weakest one."""
    findings = []
    kinds = {machine.name: (len(machine.facts.gpus), sorted(set(machine.facts.gpus))) for machine in machines}
    if len({str(kind) for kind in kinds.values()}) > 1:
        named = list_names(f"{name}: {_describe_gpus(*kind)}" for name, kind in kinds.items())
        findings.append(
            Finding(
                Level.FAIL if 0 in (count for count, _ in kinds.values()) else Level.WARN,
                "devices",
                "",
                f"The machines have different GPUs: {named}.",
                "Choose machines of one kind, or set train.device=cpu.",
            )
        )
    drivers = {machine.facts.driver for machine in machines if machine.facts.gpus}
    if len(drivers) > 1:
        findings.append(
            Finding(
                Level.WARN,
                "devices",
                "",
                f"The GPU drivers differ: {list_names(sorted(drivers))}.",
                "Install one version.",
            )
        )
    without = [machine.name for machine in machines if not set(BF16_FLAGS) & set(machine.facts.flags)]
    if 0 < len(without) < len(machines):
        findings.append(
            Finding(
                Level.WARN,
                "devices",
                without[0],
                f"The processors of {list_names(without)} have no bf16 products, those of the others have: all would train "
                "at the pace of the slowest.",
                "Choose machines of one kind.",
            )
        )
    if findings:
        return findings
    count, gpus = next(iter(kinds.values()))
    bf16 = "without" if without else "with"
    return [passed("devices", f"{_describe_gpus(count, gpus)} on each." if count else f"CPU, {bf16} bf16 products.")]


def _describe_gpus(count: int, names: Sequence[str]) -> str:
    return f"{count} x {', '.join(names)}" if count else "no GPU"


def compare_corpora(machines: Sequence[Examined], folder: str | None) -> list[Finding]:
    """The first machine's corpus counts."""
    if folder is None:
        return []
    digests = {machine.name: machine.facts.corpus for machine in machines}
    first, *others = machines
    if digests[first.name] is None:
        sentence = f"{first.name} has no prepared corpus {folder}: the launch prepares it first."
        return [Finding(Level.WARN, "corpus", first.name, sentence, "`lockstep prepare CONFIG` does it beforehand.")]
    findings = []
    for machine in others:
        digest = digests[machine.name]
        if digest is not None and digest != digests[first.name]:
            sentence = f"{machine.name} has another corpus in {folder} than {first.name}."
            remedy = "Delete it there: it is then made anew or fetched. Or prepare the same text."
            findings.append(Finding(Level.FAIL, "corpus", machine.name, sentence, remedy))
        elif digest is None:
            sentence = f"{machine.name} does not have the corpus {folder} yet."
            findings.append(
                Finding(Level.WARN, "corpus", machine.name, sentence, "Copy it there, or let the launch do it.")
            )
    return findings or [passed("corpus", f"The same corpus everywhere: {str(digests[first.name])[:12]}.")]


def judge_rates(rates: Mapping[str, Sequence[float]]) -> list[Finding]:
    """A synchronous step is as slow as its slowest worker."""
    best = max(max(own) for own in rates.values())
    findings = []
    for name, own in rates.items():
        slowest = min(own)
        if slowest < 0.75 * best:
            findings.append(
                Finding(
                    Level.FAIL if slowest < 0.4 * best else Level.WARN,
                    "speed",
                    name,
                    f"A worker on {name} does {slowest / 1e9:,.1f} GFLOP/s, the fastest one {best / 1e9:,.1f}: all "
                    "would wait for it.",
                    "Look for a limit of its control group, other programs, or a lower clock rate.",
                )
            )
    least = min(min(own) for own in rates.values())
    return findings or [passed("speed", f"{least / 1e9:,.1f} to {best / 1e9:,.1f} GFLOP/s for each worker.")]


def _count(number: float, noun: str) -> str:
    return f"{number:g} {noun}{'s' * (number != 1)}"


def _gigabytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB"
