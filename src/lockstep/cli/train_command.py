"""`lockstep train`."""

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from lockstep.config import RunConfig
    from lockstep.launch.environments.placement import Placement

MOST_PROCESSES_PER_CORE = 32
TIME_IS_OVER = 75
"""Exit code of a launch that train.max_hours stopped: "try again" by the convention of sysexits.h."""
CORES_PER_WORKER = 4
"""On CPU. With two cores, one worker with two threads is as fast as two workers or faster, and needs half of the memory.
Many threads share small products badly, so more cores get more workers; that has not been measured."""
SPIN_COUNT = "3000"
"""How often an idle OpenMP thread looks for work before it sleeps. libgomp's default is far higher: beside a busy program,
threads that spin take the cores from those that compute."""

INELASTIC = {
    "resilient": "restarts each worker by itself",
    "replicas": "has a model for every worker, and those of lost workers would be lost",
    "local": "has an own model for every worker between two synchronizations",
}
"""Strategies that have no elastic range, and why."""
INELASTIC_REMEDY = "Give one number, or choose another strategy."


def train(
    config: Annotated[
        list[str] | None, typer.Argument(help="A config file, then settings to change, as `train.steps=2000`.")
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|LEAST:MOST",
            help="Worker processes on this machine; default: train.workers, else one per GPU, or one for every four cores. "
            "2:4 starts four, and continues with two or three while the others cannot be started.",
        ),
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option(min=0, help="Additional processes that are only parameter servers, for strategy.name=server."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            help="Run folder, or address such as s3://bucket/run. If a run is there, it is continued. "
            "Default: runs/NAME for the config NAME.yaml."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="TCP port of the workers' rendezvous; 0 takes any free one.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary at the end as JSON.")] = False,
) -> None:
    """Train a model, or continue a run that was interrupted or has finished.

    The corpus is prepared first if it does not exist yet. If the run folder has a checkpoint, training continues from it:
    `lockstep train my.yaml train.steps=4000` trains a finished run of 2,000 steps for 2,000 more. Ctrl-C and SIGTERM
    save a checkpoint before the command stops (exit codes 130 and 143).

    Under torchrun, mpirun or srun, each of their processes is one worker:
    `torchrun --nproc-per-node 2 -m lockstep -- train CONFIG --run DIR`. Where a platform such as SkyPilot or Kubeflow
    starts one process on each machine, it starts the workers there. The first line says what was recognized.
    """
    from lockstep.cli.common import read_config
    from lockstep.errors import LockstepError
    from lockstep.launch.engine import join_engine
    from lockstep.launch.environments.placement import NodePlacement
    from lockstep.notices import warn
    from lockstep.run import environment_variables

    placement = join_engine()
    if placement is not None and placement.rank == 0:
        warn(placement.describe())
    words = config or []
    if run is None and words and "=" not in words[0]:
        run = str(Path("runs") / (environment_variables.skypilot_task() or Path(words[0]).stem))
    settings = read_config(words, run)
    if servers is not None and settings.strategy.name == "server":
        settings = read_config([*words, f"strategy.servers={servers}"], run)
    elif servers:
        remedy = "Leave it out, or set strategy.name=server."
        raise LockstepError(f"--servers is not for strategy.name={settings.strategy.name}.", remedy, code=2)
    if settings.warmup_notice is not None and environment_variables.rank() == 0:
        warn(settings.warmup_notice)
    least_workers, most_workers = (None, None) if workers is None else parse_workers(workers, settings.strategy.name)
    if isinstance(placement, NodePlacement):
        from lockstep.cli.train_node import join_as_node

        given = [*words, *([] if run is None else ["--run", run]), *(["--json"] * as_json)]
        given += [] if servers is None else ["--servers", str(servers)]
        if least_workers is not None and placement.nodes > 1:
            remedy = "Give one number, or start torchrun with --nnodes 1:2."
            raise LockstepError(f"--workers {workers} is for one machine, and this job has several.", remedy, code=2)
        most_workers = join_as_node(placement, settings, most_workers, given, port)
    run_training(settings, run or "", most_workers, port, as_json, least_workers=least_workers, placement=placement)


def parse_workers(text: str, strategy: str) -> tuple[int | None, int]:
    """Returns the least and the largest number of workers of `4` or `2:4`. The first is None where they are fixed."""
    from lockstep.errors import LockstepError

    match = re.fullmatch(r"(?:(\d{1,6}):)?(\d{1,6})", text)
    least, most = (int(match[1]) if match[1] else None, int(match[2])) if match else (None, 0)
    if not 1 <= (most if least is None else least) <= most:
        raise LockstepError(
            f"--workers {text} is neither a number nor a range.", "Write it as 4, or as 2:4 for two to four.", code=2
        )
    if least is not None and strategy in INELASTIC:
        raise LockstepError(f"--workers {text}: strategy.name={strategy} {INELASTIC[strategy]}.", INELASTIC_REMEDY, 2)
    return least, most


def run_training(
    config: "RunConfig",
    run: str | Path,
    workers: int | None,
    port: int = 0,
    as_json: bool = False,
    show: bool = True,
    least_workers: int | None = None,
    placement: "Placement | None" = None,
) -> None:
    """Trains in this process, in worker processes, or as the worker of an engine that `placement` says; then prints the
    summary. With `least_workers` the launch continues with fewer workers while the others are lost."""
    from lockstep.cli.common import prepare_corpus
    from lockstep.errors import require

    require("Training", "torch", "train")
    from lockstep.launch.environments.placement import WorkerPlacement
    from lockstep.process import die_with_parent
    from lockstep.remote.place import is_remote
    from lockstep.run.directory import RunDirectory
    from lockstep.train.resume import check_resume, keep_behaviour

    begin = time.time()
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # before torch is imported
    config = keep_behaviour(config, _read_recorded(run))
    if isinstance(placement, WorkerPlacement):
        die_with_parent()
        _work_for_engine(config, run, as_json, show, begin)
    if not is_remote(run):
        check_resume(RunDirectory(Path(run)), config)
        _refuse_text_folder(config, Path(run))
    if config.task_name == "translation":
        prepare_corpus(config, says_removed=True)
    reached = None if is_remote(run) else _finished_at(config, Path(run))
    if reached is None:
        count = workers or config.train.workers or choose_workers(config, run)
        stop_signal = _start(config, run, count, port, least_workers)
    else:
        steps = f"step {reached:,} is reached and train.steps is {config.train.steps:,}"
        print(f"Nothing to do: {steps}. Raise train.steps to train more.", file=sys.stderr)
        stop_signal = None
    _close(run, as_json, show, stop_signal, begin)


def _refuse_text_folder(config: "RunConfig", run: Path) -> None:
    """Refuses to put a run among the text that it is trained on."""
    from lockstep.errors import LockstepError
    from lockstep.remote.place import is_remote

    folder = config.data.folder
    if config.data.train and not is_remote(folder) and run.absolute() == Path(folder).expanduser().absolute():
        message = f"The run folder {run} is the folder of the text (data.folder)."
        raise LockstepError(message, f"Choose another one, such as --run {run / 'run'}.", code=2)


def _work_for_engine(config: "RunConfig", run: str | Path, as_json: bool, show: bool, begin: float) -> NoReturn:
    """Trains as one worker of torchrun, mpirun or another engine, watched by the monitor of its host."""
    from lockstep.errors import LockstepError
    from lockstep.launch.engine import advise_torchrun, watch_host
    from lockstep.monitor_folder import await_cause, note_end
    from lockstep.notices import print_error
    from lockstep.process import run_then_exit
    from lockstep.remote.place import working_folder
    from lockstep.run import environment_variables
    from lockstep.run.directory import RunDirectory
    from lockstep.train import worker

    settings, rank = config.train, environment_variables.rank()
    servers = config.strategy.servers if config.strategy.name == "server" else 0
    if config.strategy.name != "resilient" and rank < environment_variables.world_size() - servers:
        stall_seconds = min(settings.stall_seconds, 0.9 * settings.timeout_seconds)
        journal = RunDirectory(working_folder(run)).journal.absolute()
        watch_host(str(run), journal, stall_seconds, settings.timeout_seconds)
        advise_torchrun()

    def work() -> None:
        try:
            reason = worker.train(config, run)
        except Exception as error:
            is_lost = isinstance(error, worker.LostPeer)
            sentence = error.message if isinstance(error, LockstepError) else f"{type(error).__name__}: {error}"
            note_end("lost" if is_lost else "failed", sentence)
            if is_lost:
                await_cause()
            raise
        note_end("stopped" if reason == "signal" else "finished")
        if rank == 0:
            _close(run, as_json, show, None, begin)
        elif reason == "signal" and environment_variables.torchrun_facts() is not None:
            sys.exit(128 + signal.SIGTERM)  # torchrun would take another exit for the end of the training

    run_then_exit(work, print_error)


def _read_recorded(run: str | Path) -> bytes | None:
    """The config.yaml of a run, if there is one. It fails before the corpus is prepared if a store cannot be used."""
    from lockstep.remote.place import is_remote
    from lockstep.remote.store import Store
    from lockstep.run.directory import RunDirectory

    if is_remote(run):
        return Store(str(run)).read("config.yaml")
    directory = RunDirectory(Path(run))
    return directory.config.read_bytes() if directory.config.is_file() and directory.choices.exists() else None


def _finished_at(config: "RunConfig", run: Path) -> int | None:
    """The last step of a run that has finished and has no more steps to do; None if there is something to train. Starting
    it again would only add a launch without steps to its journal."""
    from lockstep.ablation import read_ablation
    from lockstep.explain.summary import summarise
    from lockstep.run.checkpoint import list_all
    from lockstep.run.directory import RunDirectory

    directory = RunDirectory(run)
    if read_ablation().active or not directory.config.exists() or directory.busy():
        return None
    saved = list_all(directory.checkpoints)
    if not saved or saved[-1].step < config.train.steps or saved[-1].damage() or summarise(run).state != "finished":
        return None
    scored = saved[-1].progress().score is not None or config.train.evaluate_every is None
    return saved[-1].step if scored else None


def choose_workers(config: "RunConfig", run: str | Path) -> int:
    """One worker per GPU. On CPUs as many as the last launch of the run, because more or fewer change the last bits; for a
    new run one for every CORES_PER_WORKER cores."""
    from lockstep.remote.place import is_remote
    from lockstep.run.directory import RunDirectory
    from lockstep.train.choices import read_choices

    if config.train.device != "cpu":
        import torch

        if gpus := torch.cuda.device_count():
            return gpus
    cores = len(os.sched_getaffinity(0))
    before = None if is_remote(run) else read_choices(RunDirectory(Path(run)))
    if before is not None and before.workers is not None and before.workers <= cores:
        return before.workers
    return max(1, cores // CORES_PER_WORKER)


def _start(
    config: "RunConfig", run: str | Path, workers: int, port: int, least_workers: int | None = None
) -> int | None:
    """Starts the workers and waits for them. Returns the signal that stopped them, if there was one."""
    from lockstep.launch.fork_server import Target
    from lockstep.train import worker

    servers = config.strategy.servers if config.strategy.name == "server" else 0
    if workers + servers == 1:
        worker.train(config, run)
        return None
    _check_crowd(workers + servers)
    target = Target("lockstep.train.worker", (str(run), config.model_dump_json()))
    if config.strategy.name == "resilient":
        from lockstep.launch.elastic import launch_elastic

        resilient, patience = config.strategy, config.train.timeout_seconds
        return launch_elastic(target, workers, resilient.restarts, resilient.dead_after_seconds, patience, port)
    from lockstep.launch.fixed import FixedLaunch, launch_fixed
    from lockstep.remote.place import working_folder

    is_async = servers > 0 and config.strategy.name == "server" and config.strategy.mode == "async"
    settings = config.train
    launch = FixedLaunch(
        workers,
        servers,
        port,
        can_lose_workers=is_async,
        restarts=settings.restarts,
        stall_seconds=min(settings.stall_seconds, 0.9 * settings.timeout_seconds),
        start_seconds=settings.timeout_seconds,
        least_workers=least_workers,
        return_seconds=settings.return_seconds,
        run_folder=working_folder(run),
    )
    return launch_fixed(target, launch)


def _check_crowd(processes: int) -> None:
    """Warns about many more processes than cores, and refuses a number that can only be a mistake."""
    from lockstep.errors import LockstepError
    from lockstep.notices import warn

    cores = len(os.sched_getaffinity(0))
    if processes > MOST_PROCESSES_PER_CORE * cores:
        remedy = f"Start at most {MOST_PROCESSES_PER_CORE * cores:,}; one per core or GPU is usual."
        raise LockstepError(
            f"{processes:,} processes are too many for the {cores} cores of this machine.", remedy, code=2
        )
    if processes > 2 * cores:
        warn(f"{processes:,} processes share {cores} cores: they slow each other down.")


def _score_tests(run: str | Path) -> bool:
    """Scores the test texts at the end of a fine-tuning. A failure becomes a warning, because the training succeeded.
    Returns whether there is something new to report."""
    from lockstep.cli.test_scores import score_tests
    from lockstep.errors import LockstepError
    from lockstep.notices import warn
    from lockstep.remote.place import is_remote, working_folder

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        scores = score_tests(working_folder(run), warn)
        if scores is None:
            return False
        for score in scores["scores"]:
            model = "this run" if score["model"] == "result" else scores["start"]
            warn(f"  {score['text']} test text, {model}: sacreBLEU {score['sacrebleu']:.2f}, chrF {score['chrf']:.2f}")
        if is_remote(run):
            from lockstep.remote.store import Store

            Store(str(run)).send(working_folder(run) / "tests.json", "tests.json")
    except KeyboardInterrupt:
        warn("Not all test texts were scored. The same command scores the rest.")
    except LockstepError as error:
        warn(f"The test texts were not scored: {error.message}")
    return True


def _name_signalled(journal: Path) -> str:
    """Returns which workers got the stop signal, if others did not: somebody sent it to them and not to the launcher."""
    from lockstep.run.journal import read_last_lines

    files = sorted(journal.glob("worker-*.jsonl"))
    stops = [[line for line in read_last_lines(file) if line["kind"] == "stop"] for file in files]
    signals = {rank: str(lines[-1]["signal"]) for rank, lines in enumerate(stops) if lines and lines[-1].get("signal")}
    if not 0 < len(signals) < len(files):
        return ""
    return f": {' and '.join(f'worker {rank} got {name}' for rank, name in signals.items())}, which was not sent to all"


def _close(run: str | Path, as_json: bool, show: bool, stop_signal: int | None, begin: float) -> None:
    """Prints the summary and writes the report. A run that a signal stopped ends with the exit code of that signal."""
    from dataclasses import replace

    from lockstep.ablation import read_ablation
    from lockstep.cli.common import print_json, summary_table
    from lockstep.cli.report_command import write_closing_report
    from lockstep.explain.summary import summarise
    from lockstep.remote.place import working_folder
    from lockstep.run import environment_variables
    from lockstep.run.directory import RunDirectory
    from lockstep.safe_console import SafeConsole

    summary = replace(summarise(working_folder(run)), run=str(run))
    if stop_signal is not None and (summary.ended is None or summary.ended < begin):
        print(
            "Stopped before a new step was saved. The same command continues from the last checkpoint.", file=sys.stderr
        )
        sys.exit(128 + stop_signal)
    report = None if read_ablation().active else write_closing_report(run)
    if summary.state == "finished" and report is not None and _score_tests(run):
        report = write_closing_report(run)
    if as_json:
        print_json(summary.as_dict() | {"report": report and str(report)})
    elif show:
        SafeConsole().print(summary_table(summary, report))
    if summary.is_time_over:
        why = "train.max_hours is nearly over, and the same command continues from there"
        print(f"Stopped at step {summary.step:,} and saved: {why}.", file=sys.stderr)
        sys.exit(TIME_IS_OVER if environment_variables.torchrun_facts() is None else 0)  # or torchrun would start again
    if summary.state == "stopped":
        alone = "" if stop_signal is not None else _name_signalled(RunDirectory(working_folder(run)).journal)
        sentence = f"Stopped at step {summary.step:,} and saved{alone}. The same command continues from there."
        print(sentence, file=sys.stderr)
        sys.exit(128 + signal.Signals[summary.stop_signal or "SIGTERM"])
