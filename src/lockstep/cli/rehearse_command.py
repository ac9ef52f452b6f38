"""`lockstep rehearse`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.lab.rehearsal import Rehearsal


def rehearse(
    config: Annotated[list[str], typer.Argument(help="A config file, then any `key=value` settings to change.")],
    hosts: Annotated[int, typer.Option(min=1, max=250, help="Emulated machines with workers.")] = 2,
    link: Annotated[
        str, typer.Option(help="Rate of every host's link, both ways: 100mbit, 1gbit, 10gbit; none: unlimited.")
    ] = "1gbit",
    workers_per_host: Annotated[int, typer.Option(min=1, help="Workers on each of them.")] = 1,
    servers: Annotated[
        int, typer.Option(min=0, help="Parameter servers for strategy.name=server, each on one more host.")
    ] = 0,
    steps: Annotated[int, typer.Option(min=6, help="Steps to take; the first five are warm-up.")] = 30,
    whole: Annotated[
        bool, typer.Option("--whole", help="Train to the end as configured, with evaluations, checkpoints and report.")
    ] = False,
    run: Annotated[
        Path | None, typer.Option(help="Run folder; default: runs/ and the config's name, hosts and link.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Try a job on a cluster that you have not rented.

    Every host is a network namespace of this machine with its own address, host name and processes, behind a link of the
    given rate, and torchrun starts the job there as it would on real machines. Only the computing is shared: the hosts
    have this machine's cores between them, so look at what travels and what waits, and compare rates, strategies
    and gradient formats. Needs root on Linux. Nothing is left behind but the run folder.

    `lockstep rehearse configs/demo.yaml --hosts 4 --link 100mbit strategy.gradients=bf16`
    """
    from rich.console import Console

    from lockstep.cli.common import prepare_corpus, print_json, read_config
    from lockstep.errors import LockstepError
    from lockstep.lab.emulated_network import check_able, rate_bits
    from lockstep.lab.rehearsal import EmulatedCluster, rehearse

    own = [f"strategy.servers={servers}"] if servers or read_config(config).strategy.name == "server" else []
    settings = read_config([*config, *own])
    rate = None if link == "none" else link
    if rate is not None:
        rate_bits(rate)
    check_able()
    folder = run or Path("runs") / f"{Path(config[0]).stem}-{hosts}x{link}"
    if (folder / "journal").exists():
        raise LockstepError(
            f"{folder} holds a run already, and a rehearsal starts from the beginning.", "Name another --run.", code=2
        )
    if settings.task_name == "translation":
        prepare_corpus(settings)
    goal = settings.train.steps if whole else steps
    cluster = EmulatedCluster(hosts, rate, workers_per_host, servers)
    words = [*config[1:], *own, *([] if whole else [f"train.steps={steps}"])]
    with _Progress(folder, cluster.text(), goal) as progress:
        found = rehearse(folder, Path(config[0]), words, cluster, whole, progress.look)
    if as_json:
        print_json(found.as_dict())
        return
    console = Console()
    console.print(table(found))
    console.print(found.sentence(), highlight=False)


class _Progress:
    """A bar that follows the first worker's journal."""

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

    def look(self) -> None:
        """Reads what has come since the last look."""
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


def table(found: "Rehearsal") -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from lockstep.explain.formatting import bits, count, megabytes, milliseconds, share

    shown = Table(box=box.SIMPLE, show_header=False, title=f"Rehearsal: {found.cluster}", title_justify="left")
    shown.add_column(style="dim")
    shown.add_column()
    shown.add_row("strategy", f"{found.strategy}, {found.workers} workers")
    how = f"mean of {count(found.steps)} steps, warm-up left out"
    shown.add_row("time per step", f"{milliseconds(found.step_seconds)} ({how})")
    shown.add_row("speed", f"{count(found.per_second)} {found.unit}/s, all workers")
    shown.add_row("a step is", ", ".join(f"{name} {share(part)}" for name, part in found.phase_shares.items()))
    sent = f"{megabytes(found.bytes_per_step)} handed over"
    if found.wire_bytes_per_step is not None:
        sent += f", {megabytes(found.wire_bytes_per_step)} on the wire (switch counters, busiest host)"
    shown.add_row("sent per step", sent)
    if found.wire_bits is not None:
        of = f", {share(found.link_share)} of its link" if found.link_share is not None else ""
        shown.add_row("rate", f"{bits(found.wire_bits)} while gradients were under way{of}")
    shown.add_row("run", escape(found.run))
    return shown
