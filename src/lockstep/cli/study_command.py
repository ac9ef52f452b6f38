"""`lockstep study`."""

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from lockstep.cli.group import DefaultGroup

if TYPE_CHECKING:
    from rich.console import Console

    from lockstep.explain.appendix import Table
    from lockstep.lab.study.cells import Cell, Matrix
    from lockstep.lab.study.results import Results
    from lockstep.lab.study.run_cells import StudyJob
    from lockstep.lab.study.sample import TrialSample


class _RunFirst(DefaultGroup):
    """`lockstep study CONFIG` is short for `lockstep study run CONFIG`."""

    default = "run"
    shows_group_help = False


app = typer.Typer(help="Measure how training scales with workers, and why (`lockstep study CONFIG`).", cls=_RunFirst)


@app.command("run")
def run_study(
    config: Annotated[list[str], typer.Argument(help="A config file, then settings to change, as `train.steps=2000`.")],
    workers: Annotated[
        str, typer.Option(help="Worker counts, such as 1,2,4. One worker alone is always measured.")
    ] = "1,2",
    strategies: Annotated[
        str,
        typer.Option(
            help="Strategies to compare: allreduce, sharded, server, local, resilient, replicas; with their settings as "
            "`allreduce:gradients=bf16`, `server:mode=async:staleness=4`, `local:every=10`."
        ),
    ] = "allreduce",
    links: Annotated[
        str,
        typer.Option(help="Emulated links, such as `none,1gbit`. Each worker is then a host (needs root on Linux)."),
    ] = "none",
    batch: Annotated[
        str | None,
        typer.Option(
            help="Batch sizes per worker, in the unit of the config, such as `1000,4000`. Default: that of the config."
        ),
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option(
            min=0, help="Dedicated parameter servers of `server`. With 0, each worker serves a part of the parameters."
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Measured steps in each trial.")] = 20,
    warmup: Annotated[int, typer.Option(min=5, help="Steps before them that are not measured.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Trials of each combination; the combinations take turns.")] = 3,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads per worker. Default: cores divided by the largest number of processes."),
    ] = None,
    fixed_length: Annotated[
        int | None, typer.Option(min=2, help="Cut the text into sentences of exactly this many words.")
    ] = None,
    shuffle: Annotated[
        bool, typer.Option(help="Random order of sentences. Without it, all worker counts train on the same sentences.")
    ] = True,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study; default: studies/NAME for the config NAME.yaml.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Time limit in minutes: plan fewer rounds, then fewer steps, then fewer combinations. "
            "One worker and several are always measured.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure how training scales with workers, and what the missing speed-up is lost to.

    Trains the job for a few steps in every combination of workers, strategy, link and batch, once in each round. It also
    measures one worker alone, independent replicas as the reference, and runs without input and without communication.
    The tables show speed, speed-up, the phases of a step, and the lost speed-up by cause: contention on the host, input,
    imbalance, exposed communication, update. FOLDER/study.html has charts, FOLDER/study.json has all measurements.

    A short trial comes first, and the command says how long the study should take.

    Every worker always has the same batch size and the same number of threads. Do not use the machine for anything else
    during a study. Each trial is saved at once: after Ctrl-C or a crash, the same command continues.

    `lockstep study compare A B` compares two studies.
    """
    from lockstep.cli.common import prepare_corpus, print_json, read_config
    from lockstep.config import strategy_setting
    from lockstep.errors import LockstepError
    from lockstep.lab.study import study_page
    from lockstep.lab.study.results import analyse
    from lockstep.lab.study.run_cells import StudyJob
    from lockstep.lab.study.run_cells import run_study as measure_study
    from lockstep.safe_console import SafeConsole

    if "=" in config[0]:
        raise LockstepError("No config file was given.", "For example: lockstep study configs/demo.yaml", code=2)
    changes = [] if shuffle else ["batch.shuffle=false", "batch.bucket=false"]
    changes += [] if fixed_length is None else [f"batch.fixed_length={fixed_length}"]
    job = StudyJob(Path(config[0]), [*config[1:], *changes])
    matrix = _matrix(job, workers, strategies, links, batch, servers, (steps, warmup, rounds), threads)
    job.check(matrix)
    settings = read_config([config[0], *(one for one in job.overrides if strategy_setting(one) is None)])
    if settings.task_name == "translation":
        prepare_corpus(settings, says_removed=True)
    folder = out or Path("studies") / Path(config[0]).stem
    console = SafeConsole(stderr=True)
    matrix = _plan_duration(job, matrix, folder, minutes, console)
    with _StudyProgress(console) as progress:
        study = measure_study(job, matrix, folder, progress)
    results = analyse(study)
    page, _ = study_page.write_study(study, results)
    study.save(results.as_dict())
    if as_json:
        print_json({"study": str(folder), "report": str(page), **results.as_dict()})
    else:
        _print_results(results, matrix, page)


def _plan_duration(
    job: "StudyJob", matrix: "Matrix", folder: Path, minutes: float | None, console: "Console"
) -> "Matrix":
    """Says how long the study should take, and returns the part of it that fits into the minutes. A study that has begun
    keeps its combinations, and its own trials predict the rest."""
    from lockstep.lab.study.expected_time import describe_range, fit_into, is_part_of
    from lockstep.lab.study.run_cells import probe_duration
    from lockstep.lab.study.study_file import FILE, read_study

    if (folder / FILE).exists():
        begun = matrix if minutes is None else read_study(folder).matrix
        return begun if is_part_of(begun, matrix) else matrix
    probe = probe_duration(job, matrix, folder)
    left_out = list[str]()
    if minutes is not None:
        matrix, left_out = fit_into(matrix, probe, 60 * minutes)
    cells, expected = len(matrix.list_cells()), describe_range(*probe.estimate_matrix(matrix))
    text = f"Expected: {expected} for {cells * matrix.rounds} trials ({cells} combinations, rounds: {matrix.rounds})."
    console.print(text, highlight=False, markup=False)
    for what in left_out:
        console.print(f"Left out for --minutes {minutes:g}: {what}.", highlight=False, markup=False)
    needed = probe.estimate_middle(matrix)
    if minutes is not None and needed > 60 * minutes:
        text = f"Nothing more can be left out: this study needs about --minutes {math.ceil(needed / 60)}."
        console.print(text, highlight=False, markup=False)
    return matrix


def _print_results(results: "Results", matrix: "Matrix", page: Path) -> None:
    from lockstep.lab.study.study_tables import make_tables
    from lockstep.safe_console import SafeConsole

    console = SafeConsole()
    for table in make_tables(results, matrix):
        _print(console, table)
    for note in results.notes:
        console.print(f"- {note}", style="dim", highlight=False, markup=False)
    console.print()
    for sentence in results.verdict:
        console.print(sentence, style="bold", highlight=False, markup=False)
    console.print(f"Charts: {page}", highlight=False, markup=False)


@app.command("compare")
def compare_studies(
    first: Annotated[Path, typer.Argument(help="The folder of a finished study.")],
    second: Annotated[Path, typer.Argument(help="The folder of another finished study.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two studies: settings that differ, and the speed of the combinations that both measured."""
    from lockstep.cli.common import print_json
    from lockstep.lab.study.compare_studies import compare
    from lockstep.lab.study.study_file import read_study
    from lockstep.safe_console import SafeConsole

    comparison = compare(read_study(first), read_study(second))
    if as_json:
        print_json(comparison.as_dict())
        return
    console = SafeConsole()
    for table in comparison.make_tables():
        _print(console, table)
    for name, results in zip(comparison.names, comparison.results, strict=True):
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

    from lockstep.lab.study.cells import Matrix, check_links, complete_strategy, parse_strategy_name

    config, (steps, warmup, rounds) = job.load(), measured
    strategy_list = _split(strategies, "--strategies")
    words = [complete_strategy(word, job.load(parse_strategy_name(word)), servers, steps) for word in strategy_list]
    budgets = {"words": config.batch.words, "sentences": config.batch.sentences, "images": config.batch.images}
    unit, size = next((name, value) for name, value in budgets.items() if value is not None)
    matrix = Matrix(
        tuple(sorted(set(_numbers(workers, "--workers")))),
        tuple(dict.fromkeys(words)),
        tuple(dict.fromkeys(_split(links, "--links"))),
        tuple(dict.fromkeys(_numbers(batch, "--batch"))) if batch is not None else (size,),
        unit,
        steps,
        warmup,
        rounds,
        threads or 1,
    )
    check_links(matrix.links, matrix.strategies)
    if threads is None:
        from dataclasses import replace

        most = max(cell.workers + cell.servers for cell in matrix.list_cells())
        matrix = replace(matrix, threads=max(1, len(os.sched_getaffinity(0)) // most))
    return matrix


def _split(text: str, option: str) -> list[str]:
    from lockstep.errors import LockstepError

    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise LockstepError(f"{option} {text!r} cannot be read.", "Separate the values by commas.", code=2)
    return words


def _numbers(text: str, option: str) -> list[int]:
    from lockstep.errors import LockstepError

    words = _split(text, option)
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise LockstepError(f"{option} {text!r} cannot be read.", "Write whole numbers above 0, as in 1,2,4.", code=2)
    return [int(word) for word in words]


def _print(console: "Console", table: "Table") -> None:
    from rich import box
    from rich.table import Table as Drawn

    if not table.rows:
        console.print(f"{table.title}.", style="bold", highlight=False, markup=False)
        return
    drawn = Drawn(box=box.SIMPLE_HEAD, title=table.title, title_justify="left", title_style="bold", pad_edge=False)
    for place, head in enumerate(table.heads):
        justify: Literal["left", "right"] = "left" if table.words or not place else "right"
        drawn.add_column(_head(head), justify=justify, overflow="fold", no_wrap=bool(place) and not table.words)
    for row in table.rows:
        drawn.add_row(*row)
    console.print(drawn)
    if table.note:
        console.print(table.note, style="dim", highlight=False, markup=False)


def _head(text: str) -> str:
    """Breaks long headings into two lines, so that a table fits into 80 columns."""
    halves = {"contention": "conten-", "imbalance": "imba-", "communication": "communi-", "efficiency": "effici-"}
    if text in halves:
        return f"{halves[text]}\n{text.removeprefix(halves[text][:-1])}"
    return text.replace(" ", "\n") if text in ("total time", "of replicas") else text


class _StudyProgress:
    """Shows a progress bar on a terminal, and prints a line for every trial."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None)
        self._trial = ""

    def __enter__(self) -> "_StudyProgress":
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        self._bar.stop()
        if kind is not None and issubclass(kind, (KeyboardInterrupt, SystemExit)):
            print("Stopped. The finished trials are saved: the same command continues.", file=sys.stderr)

    def begin(self, cell: "Cell", done: int, total: int, remaining: float | None) -> None:
        from lockstep.watch.eta import format_duration

        left = "" if remaining is None else f", about {format_duration(remaining)} to go"
        self._trial = f"trial {done + 1} of {total}{left}: {cell.label}, batch {cell.batch:,}"
        self._bar.update(self._task, total=total, completed=done, description=f"{cell.label}{left}")

    def end(self, cell: "Cell", sample: "TrialSample") -> None:
        line = f"{self._trial}: {sample.words_per_second:,.0f}/s, step {1000 * sample.step:,.0f} ms"
        self._bar.console.print(line, style="dim", highlight=False, markup=False)
