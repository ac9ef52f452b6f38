"""Functions that several commands share: read `CONFIG key=value ...`, prepare a corpus, print a summary."""

import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

from lockstep.terminal_text import escape_controls, strip_controls

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.config import RunConfig
    from lockstep.data.corpus.binary_corpus import Corpus
    from lockstep.explain.summary import Summary


def read_config(words: list[str], run: str | Path | None = None) -> "RunConfig":
    """Reads `CONFIG key=value ...`. Without CONFIG, the config of the run is used."""
    from lockstep.config import load, read_yaml
    from lockstep.errors import LockstepError
    from lockstep.remote.fetch_run import fetch_run
    from lockstep.remote.place import is_remote
    from lockstep.train.start_model import apply_start

    if words and "=" not in words[0]:
        config = load(Path(words[0]), words[1:])
        if config.task_name == "translation" and read_yaml(Path(words[0])).get("batch") is None:
            from lockstep.cli.fit_sizes import fill_in_sizes

            config = fill_in_sizes(config, words, None if is_remote(run) else run)
        return apply_start(config, words[1:])
    folder = fetch_run(str(run)) if is_remote(run) else Path(run or "")
    if run is not None and (folder / "config.yaml").exists():
        return apply_start(load(folder / "config.yaml", words), words)
    raise LockstepError("No config file was given.", "For example: lockstep train configs/demo.yaml", code=2)


def prepare_corpus(
    config: "RunConfig", force: bool = False, quiet: bool = False, says_removed: bool = False
) -> "Corpus":
    """Prepares the corpus if it does not exist yet, with a progress bar for each stage. If it `says_removed`, it prints in
    a few lines what cleaning did."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

    from lockstep.data.corpus.prepare import prepare
    from lockstep.errors import LockstepError
    from lockstep.notices import warn
    from lockstep.safe_console import SafeConsole

    if config.task_name != "translation":
        remedy = "`lockstep train` uses images and your own tasks' data as they are."
        raise LockstepError("Only text is prepared, and this config has none.", remedy, code=2)

    def say_stopped() -> None:
        warn("Stopped. The same command continues the preparation.")

    if quiet:
        with _end_on_sigterm(say_stopped):
            return prepare(config.data, force=force)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    names = {"read": "reading and cleaning", "vocabulary": "training the vocabulary", "encode": "encoding"}
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=SafeConsole(stderr=True), transient=True) as progress:

        def report(stage: str, done: int, total: int | None) -> None:
            if stage not in names:
                progress.console.print(f"Continuing: {done} of {total} shards were there already ({stage}).")
                return
            if stage not in tasks:
                for task in tasks.values():
                    progress.update(task, total=1, completed=1)  # a stage starts when all before it have ended
                    progress.stop_task(task)
                tasks[stage] = progress.add_task(names[stage], total=None)
            count = "" if stage == "vocabulary" else f": {done:,} pairs"
            known = None if stage == "vocabulary" else total  # its trainer does not report progress
            progress.update(tasks[stage], description=f"{names[stage]}{count}", total=known, completed=done)

        def stop_progress() -> None:
            progress.stop()
            say_stopped()

        try:
            with _end_on_sigterm(stop_progress):
                corpus = prepare(config.data, report=report, force=force)
        except KeyboardInterrupt:
            stop_progress()
            raise
    if says_removed and tasks:
        for line in _describe_removed(corpus):
            warn(line)
    return corpus


@contextmanager
def _end_on_sigterm(announce: Callable[[], None]) -> Iterator[None]:
    """Ends this process at the first SIGTERM, with the exit code of that signal. What is left is as after `kill -9`, and
    the kernel ends the processes of the pool. An exception would be lost where a library catches all."""

    def end(number: int, frame: FrameType | None) -> None:
        announce()
        os._exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _describe_removed(corpus: "Corpus") -> list[str]:
    """Sentences on what cleaning removed from the training text, and on what else the user should know of it."""
    from lockstep.cli.describe_command import describe_cleaning

    train = corpus.facts["sets"]["train"]
    removed = {reason: count for reason, count in train["removed"].items() if count}
    lines = describe_cleaning(corpus.facts)
    if removed:
        shown = ", ".join(f"{count:,} {reason}" for reason, count in removed.items())
        many = f"{sum(removed.values()):,} of {train['read']:,} pairs"
        command = f"lockstep data removed {shlex.quote(str(corpus.folder))}"
        lines.insert(0, f"Removed {many}: {shown} (`{command}` shows them).")
    return lines


def find_model_folder(place: Path, checkpoint: Literal["best", "last"]) -> Path:
    """Finds the model of a run, a checkpoint or a model folder. Warns on stderr if another checkpoint has to be used."""
    from lockstep.notices import warn
    from lockstep.run.checkpoint import find_model

    model = find_model(place, checkpoint)
    if model.notice is not None:
        warn(model.notice)
    return model.folder


def share_cores() -> None:
    """Lets idle OpenMP threads sleep instead of spin: beside another busy program, spinning threads make translation many
    times slower. Call it before torch is imported; `OMP_WAIT_POLICY` of the user wins."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@contextmanager
def show_progress(what: str) -> "Iterator[Callable[[int, int], None]]":
    """Shows on stderr how many of how many examples are done: a bar on a terminal, else a line every 15 seconds."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from lockstep.safe_console import SafeConsole

    console = SafeConsole(stderr=True)
    if not console.is_terminal:
        last = time.monotonic()

        def print_line(done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last > 15:
                last = time.monotonic()
                print(f"{what}: {done:,}/{total:,}", file=sys.stderr)

        yield print_line
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_json(value: Mapping[str, object] | Sequence[object]) -> None:
    print(escape_controls(json.dumps(value, indent=2, ensure_ascii=False)))


def print_text(*lines: str, end: str = "\n", flush: bool = False) -> None:
    """Prints lines on stdout, without the control characters that names and texts may contain."""
    print(*map(strip_controls, lines), sep="\n", end=end, flush=flush)


def fold(name: str, width: int) -> str:
    """Breaks a path or a name into lines of at most `width` characters, after a slash, hyphen, underscore or dot."""
    lines = [""]
    for part in re.findall(r"[^/_.-]*[/_.-]|[^/_.-]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """`12.3 s` below a minute, else a clock such as `1:02:05`."""
    from lockstep.watch.eta import format_duration

    return f"{seconds:.1f} s" if seconds < 60 else format_duration(seconds)


def summary_table(summary: "Summary", report: Path | None = None) -> "Table":
    """The table that ends a training: state, speed, phases of a step, times and scores."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, title=f"Run {summary.run}", title_justify="left")
    table.add_column(style="dim")
    table.add_column()
    if summary.disturbance:
        table.add_row("disturbed", summary.disturbance)
    table.add_row("state", f"{summary.state} at step {summary.step:,}")
    plural = "s" if summary.workers != 1 else ""
    table.add_row("setting", f"{summary.workers} worker{plural}, {summary.way}, {summary.precision}")
    if summary.seconds_per_step is not None:
        step = "share" if summary.asynchronous else "step"
        many = f"{summary.measured_steps:,} {step}{'s' * (summary.measured_steps != 1)}"
        left_out = f"mean of {many}, {summary.warmup_steps} warm-up steps left out"
        table.add_row(f"time per {step}", f"{summary.seconds_per_step * 1000:,.0f} ms ({left_out})")
        table.add_row("speed", f"{summary.words_per_second:,.0f} {summary.unit}/s, all workers")
        shares = ", ".join(f"{name} {share:.0%}" for name, share in summary.phase_shares.items())
        table.add_row(f"a {step} is", shares)
        if summary.arithmetic.flops_per_second is not None:
            table.add_row("arithmetic", summary.arithmetic.text())
        watched = "clock, journal, progress and sampling"
        table.add_row("watching", f"{summary.watching_share:.2%} of the step time for {watched}")
    times = {
        "training": summary.training_seconds,
        "evaluation": summary.evaluation_seconds,
        "checkpoints": summary.checkpoint_seconds,
    }
    total = sum(times.values()) or 1.0
    table.add_row("time", ", ".join(f"{name} {duration(s)} ({s / total:.0%})" for name, s in times.items()))
    if summary.loss is not None:
        table.add_row("training loss", f"{summary.loss:.3f} per {summary.unit[:-1]} at the last step")
    if summary.best_score is not None:
        best = f"{summary.metric} {summary.best_score:.2f} at step {summary.best_step:,}"
        if summary.on_test:
            last, chosen = f"{summary.metric} {summary.last_score:.2f} at the last evaluation", ""
            if summary.last_score != summary.best_score:
                chosen = f" (the best, {best}, was chosen by that set itself)"
            table.add_row("on the test set", last + chosen)
        else:
            table.add_row("best validation", best)
    if summary.skipped_steps:
        table.add_row("left out", f"{summary.skipped_steps} steps with a gradient that was not finite")
    if report is not None:
        table.add_row("report", str(report))
    if summary.metric == "sacrebleu" and summary.best_score is not None:
        table.add_row("next", f"lockstep translate {shlex.quote(summary.run)}")
    return table
