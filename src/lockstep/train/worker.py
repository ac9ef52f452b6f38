"""One worker from start to exit: join the others, settle the run, train.

The launcher's fork server calls `preload`, and `main` in every process that it forks. With one worker the command calls
`train`.
"""

import gc
import json
import os
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, TextIO

from lockstep import heartbeat
from lockstep.ablation import Ablation, read_ablation
from lockstep.config import RunConfig
from lockstep.errors import LockstepError, PortTaken, Unreachable
from lockstep.files import write_json
from lockstep.monitor_folder import read_own_peer, write_peers
from lockstep.notices import print_error, warn
from lockstep.process import describe_exception, run_then_exit
from lockstep.remote.place import is_remote, working_folder
from lockstep.run import environment_variables
from lockstep.run.directory import RunDirectory
from lockstep.run.outbox import find_own_folder
from lockstep.stderr_log import open_log, redirect_stderr
from lockstep.train.choices import Choices
from lockstep.train.failures import GpuFailed, LostPeer, OutOfMemory, explain
from lockstep.train.memory import keep_memory, touch_memory
from lockstep.train.resume import (
    HostFacts,
    check_devices,
    check_foreign,
    check_gpus,
    check_state,
    collect_host_facts,
    is_recorded,
    record_launch,
    settle_choices,
)
from lockstep.train.run_home import RunHome, find_home
from lockstep.train.start_model import StartFacts, StartModel, check_vocabulary, find_needed_start
from lockstep.train.writer_process import WriterDied

if TYPE_CHECKING:
    import torch

    from lockstep.parallel.strategy import Strategy
    from lockstep.remote.mirror import Mirror
    from lockstep.run.journal import Journal
    from lockstep.tasks.task import Task
    from lockstep.team import Team
    from lockstep.train.loop import Loop

GONE_SECONDS = 1.0
"""How long a failed worker waits to see whether its run folder is being deleted."""


def train(config: RunConfig, place: str | Path) -> str:
    """Trains as the worker that the environment names, in a folder or at an address; returns why training ended. What
    libraries write to stderr goes to a log of the run."""
    with redirect_stderr(is_alone=environment_variables.world_size() == 1):
        return _join_and_train(config, place)


def _join_and_train(config: RunConfig, place: str | Path) -> str:
    """After a failure process groups are not destroyed: NCCL would wait for peers that wait for this worker. Its exit ends
    theirs."""
    keep_memory()
    touched = touch_memory(config)
    if config.train.deterministic:
        environment_variables.make_cublas_deterministic()
    gc.disable()  # imports make many objects and no garbage
    from lockstep.devices import wait_for_memory
    from lockstep.team import join

    heartbeat.open_heartbeat()
    servers = config.strategy.servers if config.strategy.name == "server" else 0
    elastic = config.strategy.name == "resilient"
    try:
        team = join(config.train.device, config.train.timeout_seconds, servers, elastic)
        touched()
        wait_for_memory(team.device)
        _introduce_monitors(team)
        if team.serving:
            from lockstep.parallel.server.parameter_server import serve
            from lockstep.train.step import choose_optimizer

            def start_log() -> None:
                open_log(RunDirectory(find_own_folder(working_folder(place))).logs, team.rank, team.size)

            serve(team, choose_optimizer(config.optimizer), start_log)
            reason = "served"
        else:
            reason = _enter_and_train(config, RunDirectory(working_folder(place), str(place)), team, place)
    except RuntimeError as error:
        sentence = explain(error, environment_variables.rank(), config, environment_variables.world_size())
        if sentence is None:
            raise
        raise sentence from error
    team.close()
    return reason


def _introduce_monitors(team: "Team") -> None:
    """Lets the monitors of all hosts know each other, where another engine has started the workers."""
    if environment_variables.launcher_pid() is None and team.size > 1 and not (team.serving or team.elastic):
        peers, secret = team.gather(read_own_peer()), team.gather(token_hex(16))[0]
        if environment_variables.local_rank() == 0:  # it has started the monitor
            write_peers(peers, secret)


def _enter_and_train(config: RunConfig, run: RunDirectory, team: "Team", place: str | Path) -> str:
    """Trains under the run's lock; for a run on an object store, with its mirror."""
    if team.elastic:
        return _enter_and_train_elastic(config, run, team, place)
    url = str(place) if is_remote(place) else None
    lock: TextIO | None = None
    mirror: Mirror | None = None
    lock, mirror = team.all_do(lambda: _enter(run, config, url) if team.primary else (None, None))
    done, home = False, RunHome(run)
    try:
        home, config = find_home(team, run, config)
        reason = _train(config, home, team, mirror, lambda: None)
        if url is not None or not home.is_shared:
            asynchronous = config.strategy.name == "server" and config.strategy.mode == "async"
            with suppress(RuntimeError) if asynchronous else nullcontext():  # somebody may be dead
                team.gather(None)  # every worker has written its last line, so the journals can be copied
        done = True
    finally:
        home.close()
        try:
            if mirror is not None:
                for news in mirror.close(failing=not done):
                    if news.sentence:
                        warn(news.sentence)
        finally:
            if lock is not None:
                lock.close()
    return reason


def _enter_and_train_elastic(config: RunConfig, run: RunDirectory, team: "Team", place: str | Path) -> str:
    """Trains as one of several workers that may die and come back. They share the lock; the first writes the records."""
    if is_remote(place):
        raise LockstepError(
            f"strategy.name=resilient cannot train at {place}: any of its workers may have to save.",
            "Name a folder that all workers share, or use strategy.name=allreduce.",
            code=2,
        )
    if environment_variables.lighthouse() is None:
        raise LockstepError(
            "strategy.name=resilient needs a lighthouse, and TORCHFT_LIGHTHOUSE does not say where one is.",
            "Start with `lockstep train --workers N`, or start torchft_lighthouse and set it to its address.",
            code=2,
        )
    run.create()
    launch = environment_variables.launch_id()
    lock, first = run.share(launch, lambda: is_recorded(run, launch), config.train.timeout_seconds)
    with lock:
        if first:
            check_foreign(run)
        check_state(run, config, read_ablation())
        return _train(config, RunHome(run), team, None, (lambda: run.let_in(lock)) if first else (lambda: None))


def _train(
    config: RunConfig, home: RunHome, team: "Team", mirror: "Mirror | None", recorded: Callable[[], None]
) -> str:
    """Settles the run with the other workers, builds task and strategy, and runs the loop. `recorded` is called when the
    records of this launch are written."""
    from lockstep.models import kernels
    from lockstep.parallel.make_strategy import make_strategy
    from lockstep.run.journal import Journal
    from lockstep.tasks.make_task import make_task
    from lockstep.train.precision import emulate_products

    run, deciders, ablation = home.run, team.deciders(), read_ablation()
    hosts = deciders.gather(collect_host_facts(team.device))
    check_devices(hosts)
    check_gpus(hosts)
    has_kernels = all(deciders.gather(team.device.type == "cpu" and kernels.are_available()))
    choices = Choices(**deciders.primary_does(lambda: asdict(settle_choices(run, config, team, has_kernels, hosts))))
    _configure_torch(config, choices, team)
    start = StartModel.receive(deciders.primary_does(lambda: StartModel.send(find_needed_start(config, run, ablation))))
    start_facts = deciders.all_do(lambda: None if start is None else start.facts())
    if start_facts is not None and set(deciders.gather(start_facts["sha256"])) != {start_facts["sha256"]}:
        raise LockstepError(f"The workers see different models at {start_facts['from']}.", "Share or copy one of them.")
    batch = config.batch.model_copy(update=dict(choices.batch))
    on_device = team.device.type != "cpu"
    task = deciders.all_do(lambda: make_task(config.model_copy(update={"batch": batch}), on_device))
    if start is not None:
        deciders.all_do(lambda: check_vocabulary(start, task.data_facts))
    digest = task.data_facts["digest"]
    if set(deciders.gather(digest)) != {digest}:
        raise LockstepError("The workers see different corpora.", "Prepare it once and share it, or copy it.")
    settings = config.strategy
    if settings.name == "local":
        settings = settings.model_copy(update={"every": choices.every})
    strategy = make_strategy(settings, team.size)
    changed = deciders.primary_does(lambda: record_launch(run, config, choices, task, hosts))
    recorded()
    own = deciders.all_do(lambda: home.join(team, choices.run, choices.launch))
    journal = deciders.all_do(lambda: Journal(own.journal, team.rank))
    try:
        open_log(own.logs, team.rank, team.size)
        home.start_shipping(team.rank)
        deterministic = config.train.deterministic
        _journal_launch(journal, choices, team, strategy, task, ablation, changed, start_facts, deterministic)
        loop = _make_loop(config, home, task, strategy, team, journal, choices, hosts, mirror, ablation, start)
        gc.enable()
        with emulate_products(choices.precision, team.device):
            reason = loop.train()
        journal.close()
        home.finish(is_done=True)
        return reason
    except (OSError, LockstepError) as error:
        raise _explain_failure(own, error, home.service is None) from None
    finally:
        journal.close()
        home.finish(is_done=False)


def _configure_torch(config: RunConfig, choices: Choices, team: "Team") -> None:
    """Has torch compute as this launch has settled: kernels, format of products, threads, fixed order."""
    import torch

    from lockstep.models import kernels
    from lockstep.train.precision import choose_fp32_products

    kernels.select(choices.kernels)
    choose_fp32_products(team.device, config.train.tf32)
    if environment_variables.counts_waits() and team.device.type == "cuda":
        warnings.filterwarnings("always", message="called a synchronizing")
        torch.cuda.set_sync_debug_mode("warn")
    torch.set_num_threads(choices.threads[str(team.size)])
    if config.train.deterministic:  # even turning it off would import torch's compiler: two seconds
        torch.use_deterministic_algorithms(True)


def _explain_failure(run: RunDirectory, error: OSError | LockstepError, has_run: bool) -> LockstepError:
    """Returns the error for a person. Whatever could not be written, a run folder that is gone is the reason, where this
    host has it."""
    if isinstance(error, LockstepError) and error.code == 2:
        return error
    if has_run and _is_gone(run):
        return LockstepError(
            f"The run folder {run.path} is gone: it was deleted or moved while the run was training.",
            "If it was moved, continue it there with --run. Otherwise the same command starts the run anew.",
        )
    if isinstance(error, LockstepError):
        return error
    place = error.filename if isinstance(error.filename, str) else f"The run folder {run.path}"
    remedy = "Nothing before the last checkpoint is lost: make room and start the same command again."
    return LockstepError(f"{place}: {error.strerror}.", remedy)


def _is_gone(run: RunDirectory) -> bool:
    """Whether the run folder is deleted, or is being deleted: its files go one after another."""
    deadline = time.monotonic() + GONE_SECONDS
    while run.config.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _journal_launch(
    journal: "Journal",
    choices: Choices,
    team: "Team",
    strategy: "Strategy",
    task: "Task",
    ablation: Ablation,
    changed: dict[str, list[Any]],
    start: StartFacts | None,
    is_deterministic: bool,
) -> None:
    from lockstep.train.precision import is_emulated

    journal.write(
        "run",
        attempt=choices.launches,
        workers=team.size,
        servers=team.servers,
        pid=os.getpid(),
        restarts=environment_variables.restarts(),
        strategy=strategy.name,
        exact=is_exact(strategy, team.device, is_deterministic),
        precision=choices.precision,
        emulated=is_emulated(choices.precision, team.device),
        kernels=choices.kernels,
        threads=choices.threads[str(team.size)],
        unit=task.unit,
        width=task.width,
        metric=task.metric,
        higher_is_better=task.higher_is_better,
        without=ablation.disabled,
        changed=changed,
        **({} if start is None else {"start": start}),
    )


def is_exact(strategy: "Strategy", device: "torch.device", is_deterministic: bool) -> bool:
    """Whether a resumed run ends bit-identical to an uninterrupted one. Most kernels of a GPU add in no fixed order."""
    return strategy.exact_resume and (device.type != "cuda" or is_deterministic)


def _make_loop(
    config: RunConfig,
    home: RunHome,
    task: "Task",
    strategy: "Strategy",
    team: "Team",
    journal: "Journal",
    choices: Choices,
    hosts: list[HostFacts],
    mirror: "Mirror | None",
    ablation: Ablation,
    start: StartModel | None,
) -> "Loop":
    from lockstep.train.checkpointer import Checkpointer
    from lockstep.train.loop import Loop
    from lockstep.train.probes import Probes

    run = home.run
    devices, in_step = [facts["device_name"] for facts in hosts], strategy.takes_every_step and not team.elastic
    return Loop(
        config,
        run,
        task,
        strategy,
        team,
        journal,
        choices.precision,
        choices.launches,
        Probes(run, team, journal, choices, devices, in_step, config.watch.probe),
        Checkpointer(config, run, task, strategy, team, journal, choices.launches, mirror, home),
        ablation,
        start_folder=None if start is None else start.folder,
        sampled_gpus=_choose_sampled_gpus(team, hosts),
    )


def _enter(run: RunDirectory, config: RunConfig, url: str | None) -> "tuple[TextIO, Mirror | None]":
    """Locks the folder, updates it from the object store if it mirrors one, and checks that the run may continue there."""
    run.create()
    if url is None:
        check_foreign(run)
        lock = run.lock()
        check_state(run, config, read_ablation())
        return lock, None
    from lockstep.remote.mirror import Mirror

    mirror = Mirror(url, run)
    lock = run.lock()
    try:
        mirror.open()
        check_foreign(run)
        check_state(run, config, read_ablation())
    except BaseException:
        mirror.close(failing=True)
        raise
    return lock, mirror


def _choose_sampled_gpus(team: "Team", hosts: list[HostFacts]) -> list[str] | None:
    """Returns the UUIDs of the run's GPUs on this host, if this worker samples the host for the others there, else None.
    Elastic workers know only themselves."""
    if team.elastic:
        return [facts["gpu"] for facts in hosts if "gpu" in facts] if environment_variables.local_rank() == 0 else None
    ranks = [rank for rank, facts in enumerate(hosts) if facts["host"] == hosts[team.rank]["host"]]
    if ranks[0] != team.rank:
        return None
    return [gpu for rank in ranks if (gpu := hosts[rank].get("gpu")) is not None]


PRELOADED = {
    "all": (
        *("lockstep.tasks.make_task", "lockstep.team", "lockstep.train.loop", "lockstep.train.probes"),
        *("lockstep.train.checkpointer", "numpy.random", "psutil", "safetensors.torch", "torch.utils.flop_counter"),
    ),
    "deterministic": ("torch._inductor.config",),
    "translation": ("lockstep.data.corpus.prepare", "lockstep.tasks.translation", "sacrebleu", "sentencepiece"),
    "classification": ("lockstep.data.corpus.remote_copies", "lockstep.tasks.classification"),
    "auto": ("lockstep.parallel.allreduce",),
    "allreduce": ("lockstep.parallel.allreduce",),
    "sharded": ("lockstep.parallel.sharded.fsdp",),
    "replicas": ("lockstep.parallel.replicas",),
    "local": ("lockstep.parallel.local_sgd",),
    "server": ("lockstep.parallel.server.parameter_server",),
    "resilient": ("lockstep.parallel.resilient.resilient_allreduce",),
}
"""Modules that workers import: all of them, those that train deterministically, and those of a task or strategy."""


def preload(place: str, config_json: str) -> None:
    """Imports what `main` will need, in a process that is then forked: no thread starts and no tensor is computed."""
    config = RunConfig.model_validate(json.loads(config_json))
    deterministic = ["deterministic"] if config.train.deterministic else []
    for part in ("all", *deterministic, config.task_name, config.strategy.name):
        for name in PRELOADED.get(part, ()):
            import_module(name)


def main(place: str, config_json: str) -> None:
    """Runs one worker and ends the process. The launcher prints its failure, which it reads from a file."""
    config = RunConfig.model_validate(json.loads(config_json))
    run_then_exit(lambda: train(config, place), tell_launcher, tell_crash)


def tell_launcher(error: LockstepError) -> None:
    """Writes a failure where the launcher reads it, or prints it if the environment names no file."""
    path = environment_variables.error_file()
    if path is None:
        print_error(error)
        return
    kinds = {
        LostPeer: "lost",
        Unreachable: "lost",
        PortTaken: "port",
        OutOfMemory: "memory",
        WriterDied: "writer",
        GpuFailed: "crash",  # another start may succeed
    }
    _write_failure(path, kinds.get(type(error), "error"), error)


def tell_crash(error: Exception) -> None:
    """Writes an unexpected exception where the launcher reads it."""
    path = environment_variables.error_file()
    if path is not None:
        _write_failure(path, "crash", LockstepError(describe_exception(error)))


def _write_failure(path: Path, kind: str, error: LockstepError) -> None:
    facts = {"kind": kind, "message": error.message, "remedy": error.remedy, "code": error.code}
    write_json(path, {"message": json.dumps(facts), "timestamp": int(time.time())})
