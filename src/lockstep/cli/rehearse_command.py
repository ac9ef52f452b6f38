"""`lockstep rehearse`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.lab.rehearsal import Rehearsal


def rehearse(
    config: Annotated[list[str], typer.Argument(help="A config file, then settings to change, as `train.steps=2000`.")],
    hosts: Annotated[int, typer.Option(min=1, max=250, help="Number of emulated machines with workers.")] = 2,
    link: Annotated[
        str,
        typer.Option(help="Rate of every host's link in both directions, such as 100mbit or 1gbit; none: unlimited."),
    ] = "1gbit",
    workers_per_host: Annotated[int, typer.Option(min=1, help="Workers on each host.")] = 1,
    servers: Annotated[
        int, typer.Option(min=0, help="Parameter servers for strategy.name=server, each on an additional host.")
    ] = 0,
    steps: Annotated[int, typer.Option(min=6, help="Steps to train; the first five are warm-up.")] = 30,
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
    from rich.console import Console

    from lockstep.cli.common import prepare_corpus, print_json, read_config
    from lockstep.errors import LockstepError
    from lockstep.lab.emulated_network import check_can_emulate, parse_rate
    from lockstep.lab.rehearsal import EmulatedCluster, rehearse

    own = [f"strategy.servers={servers}"] if servers or read_config(config).strategy.name == "server" else []
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
        prepare_corpus(settings)
    goal = settings.train.steps if all_steps else steps
    cluster = EmulatedCluster(hosts, rate, workers_per_host, servers)
    words = [*config[1:], *own, *([] if all_steps else [f"train.steps={steps}"])]
    with _Progress(folder, cluster.describe(), goal) as progress:
        rehearsal = rehearse(folder, Path(config[0]), words, cluster, all_steps, progress.update)
    if as_json:
        print_json(rehearsal.as_dict())
        return
    console = Console()
    console.print(_table(rehearsal))
    console.print(rehearsal.sentence(), highlight=False)


class _Progress:
    """A progress bar that reads the journal of the first worker."""

    def __init__(self, run: Path, title: str, goal: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
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
    from rich.markup import escape
    from rich.table import Table

    from lockstep.explain.formatting import bits, count, megabytes, milliseconds, share

    table = Table(box=box.SIMPLE, show_header=False, title=f"Rehearsal: {rehearsal.cluster}", title_justify="left")
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
    table.add_row("run", escape(rehearsal.run))
    return table
