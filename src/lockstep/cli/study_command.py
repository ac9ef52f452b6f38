"""`lockstep study`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lockstep.cli.group import DefaultGroup

if TYPE_CHECKING:
    from rich.console import Console

    from lockstep.explain.appendix import Table
    from lockstep.lab.study.cells import Cell, Matrix
    from lockstep.lab.study.run_cells import StudyJob
    from lockstep.lab.study.sample import TrialSample


class _RunFirst(DefaultGroup):
    """`lockstep study CONFIG` measures without being told to."""

    default = "run"
    shows_group_help = False


app = typer.Typer(help="Measure how training scales with workers, and why (`lockstep study CONFIG`).", cls=_RunFirst)


@app.command("run")
def run_study(
    config: Annotated[list[str], typer.Argument(help="A config file, then any `key=value` settings to change.")],
    workers: Annotated[str, typer.Option(help="Worker counts; one worker alone is always measured.")] = "1,2",
    strategies: Annotated[
        str,
        typer.Option(
            help="What to compare: allreduce, sharded, server, local, resilient, replicas; with settings of their own as "
            "`allreduce:gradients=bf16`, `server:mode=async:staleness=4`, `local:every=10`."
        ),
    ] = "allreduce",
    links: Annotated[
        str, typer.Option(help="Emulated links such as `none,1gbit`; every worker is then a host (Linux, root).")
    ] = "none",
    batch: Annotated[
        str | None,
        typer.Option(help="What each worker has of a step, in the config's words, sentences or images: `1000,4000`."),
    ] = None,
    servers: Annotated[
        int | None, typer.Option(min=0, help="Dedicated servers of `server`; with none every worker holds a part.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Measured steps of each trial.")] = 20,
    warmup: Annotated[int, typer.Option(min=5, help="Steps before them that do not count.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="How often every cell is measured, in turns.")] = 3,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Per worker, in every cell; default: cores over the most processes.")
    ] = None,
    fixed_length: Annotated[
        int | None, typer.Option(min=2, help="Cut the text into sentences of so many words, all alike.")
    ] = None,
    shuffle: Annotated[
        bool, typer.Option(help="Sentences in random order, or in that of the text: then all counts compute the same.")
    ] = True,
    out: Annotated[
        Path | None, typer.Option(help="The study's folder; default: studies/ and the config's name.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure how training scales, and where the speed-up that is missing went.

    Trains the job for a few steps in every combination of workers, strategy, link and batch, each in every round. It also
    measures one worker alone, independent replicas (the yardstick), and runs without input and without communication. The
    tables tell speed, speed-up, the phases of a step, and the lost speed-up by cause: contention on the host, input,
    imbalance, exposed communication, update. FOLDER/study.html has the charts, FOLDER/study.json everything.

    Each worker has the same share of a step whatever their number, and the same threads. Leave the machine alone meanwhile.
    What is measured is stored at once: after Ctrl-C or a crash the same command goes on.

    `lockstep study compare A B` puts two studies side by side.
    """
    from rich.console import Console

    from lockstep.cli.common import prepare_corpus, print_json
    from lockstep.errors import LockstepError
    from lockstep.lab.study import study_page
    from lockstep.lab.study.results import find
    from lockstep.lab.study.run_cells import StudyJob, run
    from lockstep.lab.study.study_tables import tables

    if "=" in config[0]:
        raise LockstepError("No config file was named.", "For example: lockstep study configs/demo.yaml", code=2)
    own = [] if shuffle else ["batch.shuffle=false", "batch.bucket=false"]
    own += [] if fixed_length is None else [f"batch.fixed_length={fixed_length}"]
    job = StudyJob(Path(config[0]), [*config[1:], *own])
    settings = job.load()
    matrix = _matrix(job, workers, strategies, links, batch, servers, (steps, warmup, rounds), threads)
    if settings.task_name == "translation":
        prepare_corpus(settings)
    folder = out or Path("studies") / Path(config[0]).stem
    console = Console(stderr=True)
    with _Shown(console) as shown:
        study = run(job, matrix, folder, shown)
    found = find(study)
    written, _ = study_page.write(study, found)
    study.save(found.facts())
    if as_json:
        print_json({"study": str(folder), "report": str(written), **found.facts()})
        return
    told = Console()
    for table in tables(found, matrix):
        _print(told, table)
    for note in found.notes:
        told.print(f"- {note}", style="dim", highlight=False, markup=False)
    told.print()
    for sentence in found.verdict:
        told.print(sentence, style="bold", highlight=False, markup=False)
    told.print(f"Charts: {written}", highlight=False, markup=False)


@app.command("compare")
def compare_studies(
    first: Annotated[Path, typer.Argument(help="The folder of a finished study.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Put two studies side by side: what differs in their settings, and the speed of the cells that both have."""
    from rich.console import Console

    from lockstep.cli.common import print_json
    from lockstep.lab.study.compare_studies import compare
    from lockstep.lab.study.study_file import read_study

    found = compare(read_study(first), read_study(second))
    if as_json:
        print_json(found.facts())
        return
    console = Console()
    for table in found.tables():
        _print(console, table)
    for name, results in zip(found.names, found.results, strict=True):
        console.print(f"{name}: {results.verdict[0]}", highlight=False, markup=False)


def _matrix(
    job: "StudyJob",
    workers: str,
    strategies: str,
    links: str,
    batch: str | None,
    servers: int | None,
    measured: tuple[int, int, int],
    threads: int | None,
) -> "Matrix":
    import os

    from lockstep.lab.study.cells import Matrix, check_links, strategy_name, strategy_word

    config, (steps, warmup, rounds) = job.load(), measured
    listed = _listed(strategies, "--strategies")
    words = [strategy_word(word, job.load(strategy_name(word)), servers, steps) for word in listed]
    kept = {"words": config.batch.words, "sentences": config.batch.sentences, "images": config.batch.images}
    unit, size = next((name, value) for name, value in kept.items() if value is not None)
    found = Matrix(
        tuple(sorted(set(_numbers(workers, "--workers")))),
        tuple(dict.fromkeys(words)),
        tuple(dict.fromkeys(_listed(links, "--links"))),
        tuple(dict.fromkeys(_numbers(batch, "--batch"))) if batch is not None else (size,),
        unit,
        steps,
        warmup,
        rounds,
        threads or 1,
    )
    check_links(found.links, found.strategies)
    if threads is None:
        from dataclasses import replace

        most = max(cell.workers + cell.servers for cell in found.cells())
        found = replace(found, threads=max(1, len(os.sched_getaffinity(0)) // most))
    return found


def _listed(text: str, option: str) -> list[str]:
    from lockstep.errors import LockstepError

    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise LockstepError(f"{option} {text!r} cannot be read.", "Separate words by commas.", code=2)
    return words


def _numbers(text: str, option: str) -> list[int]:
    from lockstep.errors import LockstepError

    words = _listed(text, option)
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise LockstepError(f"{option} {text!r} cannot be read.", "Write whole numbers, as in 1,2,4.", code=2)
    return [int(word) for word in words]


def _print(console: "Console", table: "Table") -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table as Drawn

    if not table.rows:
        console.print(f"{table.title}.", style="bold", highlight=False, markup=False)
        return
    drawn = Drawn(
        box=box.SIMPLE_HEAD, title=escape(table.title), title_justify="left", title_style="bold", pad_edge=False
    )
    for place, head in enumerate(table.heads):
        justify: Literal["left", "right"] = "left" if table.words or not place else "right"
        drawn.add_column(_head(head), justify=justify, overflow="fold", no_wrap=bool(place) and not table.words)
    for row in table.rows:
        drawn.add_row(*(escape(value) for value in row))
    console.print(drawn)
    if table.note:
        console.print(table.note, style="dim", highlight=False, markup=False)


def _head(text: str) -> str:
    """Long words in two lines: a terminal is 80 letters wide."""
    halves = {"contention": "conten-", "imbalance": "imba-", "communication": "communi-", "efficiency": "effici-"}
    if text in halves:
        return f"{halves[text]}\n{text.removeprefix(halves[text][:-1])}"
    return text.replace(" ", "\n") if text in ("total time", "of replicas") else text


class _Shown:
    """A clock and a bar on a terminal, and a line for every trial."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (MofNCompleteColumn(), BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None)
        self._told = ""

    def __enter__(self) -> "_Shown":
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        self._bar.stop()
        if kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit)):
            print("Stopped. What was measured is kept: the same command goes on.", file=sys.stderr)

    def begin(self, cell: "Cell", done: int, total: int, remaining: float | None) -> None:
        from lockstep.watch.console import format_duration

        left = "" if remaining is None else f", about {format_duration(remaining)} to go"
        self._told = f"trial {done + 1} of {total}{left}: {cell.label}, batch {cell.batch:,}"
        self._bar.update(self._task, total=total, completed=done, description=f"{cell.label}{left}")

    def end(self, cell: "Cell", sample: "TrialSample") -> None:
        said = f"{self._told}: {sample.words_per_second:,.0f}/s, step {1000 * sample.step:,.0f} ms"
        self._bar.console.print(said, style="dim", highlight=False, markup=False)
