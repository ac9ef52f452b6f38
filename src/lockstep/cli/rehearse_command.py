"""`lockstep rehearse`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.lab.rehearsal import Rehearsal


DEFAULT_STEPS = 30
LEAST_STEPS = 6
NOT_WITHOUT_WHOLE = (
    "train.evaluate_every",
    "train.checkpoint_every",
    "train.patience",
    "train.keep_last",
    "train.keep_best",
)


def rehearse(
    config: Annotated[list[str], typer.Argument(help="A config file, then settings to change, as `train.steps=2000`.")],
    hosts: Annotated[int, typer.Option(min=1, max=250, help="Number of emulated machines with workers.")] = 2,
    link: Annotated[
        str,
        typer.Option(help="Rate of every host's link in both directions, such as 100mbit or 1gbit; none: unlimited."),
    ] = "1gbit",
    workers_per_host: Annotated[int, typer.Option(min=1, help="Workers on each host.")] = 1,
    servers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Parameter servers for strategy.name=server, each on an additional host; default: strategy.servers.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=6, help="Steps to train; the first five are warm-up. Default: 30, or train.steps if you set it."
        ),
    ] = None,
    all_steps: Annotated[
        bool, typer.Option("--whole", help="Train all steps of the config, with evaluations, checkpoints and report.")
    ] = False,
    run: Annotated[
        Path | None, typer.Option(help="Run folder; default: runs/NAME-HOSTSxLINK for the config NAME.yaml.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Train on an emulated cluster of this machine, to see what its links cost.

    Every host is a network namespace of this machine with its own address, host name, processes and a link of the given
    rate, and torchrun starts the job as on real machines. The hosts share the cores of this machine, so compare the
    traffic and the waiting times of rates, strategies and gradient formats rather than absolute speed. Needs root on
    Linux. Only the run folder remains afterwards.

    `lockstep rehearse configs/demo.yaml --hosts 4 --link 100mbit strategy.gradients=bf16`
    """
    from lockstep.cli.common import prepare_corpus, print_json, read_config
    from lockstep.errors import LockstepError
    from lockstep.lab.emulated_network import check_can_emulate, parse_rate
    from lockstep.lab.rehearsal import EmulatedCluster, rehearse
    from lockstep.safe_console import SafeConsole

    has_servers = read_config(config).strategy.name == "server"
    own = choose_settings(config[1:], steps, servers if servers or has_servers else None, all_steps)
    settings = read_config([*config, *own])
    rate = None if link == "none" else link
    if rate is not None:
        parse_rate(rate)
    check_can_emulate()
    folder = run or Path("runs") / f"{Path(config[0]).stem}-{hosts}x{link}"
    if (folder / "journal").exists():
        raise LockstepError(
            f"{folder} has a run already, and a rehearsal starts from step 0.", "Choose another --run.", code=2
        )
    if settings.task_name == "translation":
        prepare_corpus(settings, says_removed=True)
    on_hosts = settings.strategy.servers if settings.strategy.name == "server" else 0
    cluster = EmulatedCluster(hosts, rate, workers_per_host, on_hosts)
    with _Progress(folder, cluster.describe(), settings.train.steps) as progress:
        rehearsal = rehearse(folder, Path(config[0]), [*config[1:], *own], cluster, all_steps, progress.update)
    if as_json:
        print_json(rehearsal.as_dict())
        return
    console = SafeConsole()
    console.print(_table(rehearsal))
    console.print(rehearsal.sentence(), highlight=False)


def choose_settings(words: list[str], steps: int | None, servers: int | None, all_steps: bool) -> list[str]:
    """Returns the settings that a rehearsal adds to those of the command line. Raises a LockstepError where a setting and
    an option exclude each other, and for settings that have no effect."""
    from lockstep.errors import LockstepError

    given = {key.strip(): value for key, _, value in (word.partition("=") for word in words)}
    for key, option, value in (("train.steps", "--steps", steps), ("strategy.servers", "--servers", servers)):
        if key in given and value is not None:
            raise LockstepError(f"{option} and {key} set the same.", "Give one of them.", code=2)
    if steps is not None and all_steps:
        raise LockstepError("--whole trains all steps of the config.", "Leave out --steps, or set train.steps.", code=2)
    idle = [key for key in given if key in NOT_WITHOUT_WHOLE]
    if idle and not all_steps:
        reason = "A rehearsal neither evaluates nor saves checkpoints"
        raise LockstepError(f"{reason}, so {idle[0]} has no effect.", "Add --whole, or leave it out.", code=2)
    count = given.get("train.steps", "")
    if count.strip().isdigit() and int(count) < LEAST_STEPS and not all_steps:
        raise LockstepError("The first five steps are warm-up.", f"Set train.steps to {LEAST_STEPS} or more.", code=2)
    own = [] if servers is None else [f"strategy.servers={servers}"]
    return own if all_steps or "train.steps" in given else [*own, f"train.steps={steps or DEFAULT_STEPS}"]


class _Progress:
    """A progress bar that reads the journal of the first worker."""

    def __init__(self, run: Path, title: str, goal: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        from lockstep.safe_console import SafeConsole

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=SafeConsole(stderr=True), transient=True)
        self._task = self._bar.add_task(f"{title}: starting", total=goal)
        self._title, self._journal, self._read, self._rest = title, run / "journal" / "worker-0000.jsonl", 0, ""

    def __enter__(self) -> "_Progress":
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def update(self) -> None:
        """Reads the lines that were written since the last call."""
        import json

        try:
            with self._journal.open(encoding="utf-8") as file:
                file.seek(self._read)
                text = self._rest + file.read()
                self._read = file.tell()
        except FileNotFoundError:
            return
        *lines, self._rest = text.split("\n")
        for line in reversed(lines):
            if '"kind": "step"' in line or '"kind":"step"' in line:
                self._bar.update(self._task, completed=json.loads(line)["step"], description=self._title)
                return


def _table(rehearsal: "Rehearsal") -> "Table":
    from rich import box
    from rich.table import Table

    from lockstep.explain.formatting import bits, count, megabytes, milliseconds, share

    table = Table(box=box.SIMPLE, show_header=False, title=f"Rehearsal: {rehearsal.cluster}")
    table.title_justify = "left"
    table.add_column(style="dim")
    table.add_column()
    table.add_row("strategy", f"{rehearsal.strategy}, {rehearsal.workers} workers")
    how = f"mean of {count(rehearsal.steps)} steps, warm-up left out"
    table.add_row("time per step", f"{milliseconds(rehearsal.step_seconds)} ({how})")
    table.add_row("speed", f"{count(rehearsal.per_second)} {rehearsal.unit}/s, all workers")
    table.add_row("a step is", ", ".join(f"{name} {share(part)}" for name, part in rehearsal.phase_shares.items()))
    sent = f"{megabytes(rehearsal.bytes_per_step)} sent by the workers"
    if rehearsal.wire_bytes_per_step is not None:
        sent += f", {megabytes(rehearsal.wire_bytes_per_step)} on the wire (switch counters, busiest host)"
    table.add_row("sent per step", sent)
    if rehearsal.wire_bits is not None:
        of = f", {share(rehearsal.link_share)} of its link" if rehearsal.link_share is not None else ""
        table.add_row("rate", f"{bits(rehearsal.wire_bits)} while gradients were under way{of}")
    table.add_row("run", rehearsal.run)
    return table
