"""One worker from its first breath to its exit: meet the others, settle the run, train.

`python -m lockstep.train.worker RUN CONFIG_JSON` is what launchers start; with one worker the command calls `train`.
"""

import ctypes
import gc
import json
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lockstep.config import RunConfig, build, differences, read_yaml
from lockstep.counterfactual import left_out
from lockstep.errors import LockstepError, PortTaken
from lockstep.files import read_json, write_json, write_whole
from lockstep.parent import die_with_parent
from lockstep.remote.place import is_remote, working_folder
from lockstep.rundir import RunDirectory

if TYPE_CHECKING:
    import torch

    from lockstep.remote.mirror import Mirror
    from lockstep.tasks.task import Task
    from lockstep.team import Team


def check_resume(run: RunDirectory, config: RunConfig) -> None:
    """Refuses settings that the state in the run directory does not fit. Without a checkpoint there is no state."""
    if not (run.config.exists() and _has_checkpoint(run)):
        return
    kept, _ = differences(_config_of(run), config)
    if kept:
        shown = ", ".join(f"{key} {old!r} -> {new!r}" for key, (old, new) in kept.items())
        raise LockstepError(
            f"The run {run.name} was started with other settings, and its state does not fit the new ones: {shown}.",
            "Choose another --run folder, or keep these settings.",
            code=2,
        )


def keep_memory() -> None:
    """Lets glibc keep freed memory: giving each activation back to the kernel costs a page-fault storm every step."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
        libc.mallopt(-4, 0)  # M_MMAP_MAX


def touch_memory(config: RunConfig) -> Callable[[], None]:
    """Lets a spare core touch memory that the first step will need while this one imports torch: the kernel takes its
    time over pages that are used for the first time. The returned call hands the memory to malloc, which keeps it."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))
    spare_cores = len(os.sched_getaffinity(0)) // here > 1
    gpu = config.train.device == "cuda" or Path("/proc/driver/nvidia").exists()
    words = (config.batch.words or 0) // (1 if config.batch.per == "worker" else int(os.environ.get("WORLD_SIZE", "1")))
    size = min(4 * words * config.model.kept_per_word, 2**30)
    if not spare_cores or gpu or size < 2**26 or platform.libc_ver()[0] != "glibc":
        return lambda: None
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    block = ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size)))
    if not block:
        return lambda: None
    toucher = threading.Thread(target=libc.memset, args=(block, 0, ctypes.c_size_t(size)))
    toucher.start()

    def hand_over() -> None:
        toucher.join()
        libc.free(block)

    return hand_over


def train(config: RunConfig, place: str | Path) -> str:
    """Trains as the worker that the environment says, in a folder or at an address; returns why training ended."""
    keep_memory()
    touched = touch_memory(config)
    gc.disable()  # the imports to come make many objects and no garbage
    from lockstep.team import join

    servers = config.strategy.servers if config.strategy.name == "server" else 0
    apart = config.strategy.name == "resilient"
    team = join(config.train.device, config.train.timeout_seconds, servers, apart)
    touched()
    try:
        if team.serving:
            from lockstep.parallel.server import serve

            serve(team)
            return "served"
        return _enter_and_train(config, RunDirectory(working_folder(place), str(place)), team, place)
    except RuntimeError as error:
        text, signs = str(error), ("Connection", "peer", "gloo", "Timed out", "NCCL")
        if team.size > 1 and any(sign in text for sign in signs):
            raise LostPeer(team.rank, text) from error
        raise
    finally:
        team.close()


class LostPeer(LockstepError):
    """Another worker went away; its own failure tells more than this one."""

    def __init__(self, rank: int, detail: str) -> None:
        super().__init__(
            f"Worker {rank} lost the connection to another worker ({detail.strip().splitlines()[0][:160]}).",
            "Start the same command again: it goes on from the last checkpoint.",
        )


def _enter_and_train(config: RunConfig, run: RunDirectory, team: "Team", place: str | Path) -> str:
    """Holds the run's lock, and what mirrors it to an object store, for as long as training takes."""
    if team.apart:
        return _enter_and_train_apart(config, run, team, place)
    url = str(place) if is_remote(place) else None
    lock: TextIO | None = None
    mirror: Mirror | None = None
    lock, mirror = team.all_do(lambda: _enter(run, config, url) if team.primary else (None, None))
    done = False
    try:
        if url is not None:
            launch = team.primary_does(lambda: mirror.launch if mirror else "")
            team.all_do(lambda: _check_shared(run, url, launch))
        reason = _train(config, run, team, mirror)
        if url is not None:
            team.gather(None)  # every worker has written its last line: the journals can be copied
        done = True
    finally:
        try:
            if mirror is not None:
                for news in mirror.close(failing=not done):
                    print(news.sentence, file=sys.stderr)
        finally:
            if lock is not None:
                lock.close()
    return reason


def _enter_and_train_apart(config: RunConfig, run: RunDirectory, team: "Team", place: str | Path) -> str:
    """As one of several workers that come and go: they hold the lock together, and the first makes the records."""
    from lockstep.chatter import aside

    if is_remote(place):
        raise LockstepError(
            f"strategy.name=resilient cannot train at {place}: any of its workers may have to save.",
            "Name a folder that all workers share, or use strategy.name=allreduce.",
            code=2,
        )
    if "TORCHFT_LIGHTHOUSE" not in os.environ:
        raise LockstepError(
            "strategy.name=resilient needs a lighthouse, and TORCHFT_LIGHTHOUSE does not say where one is.",
            "Start with `lockstep train --workers N`, or start torchft_lighthouse and set it to its address.",
            code=2,
        )
    run.create()
    launch = _launch()
    lock, first = run.share(launch, lambda: _settled(run, launch), config.train.timeout_seconds)
    with lock:
        if first:
            _check_foreign(run)
        _check_state(run, config)
        run.logs.mkdir(exist_ok=True)
        with aside(run.logs / f"worker-{team.rank:04d}.log"):
            return _train(config, run, team, None, (lambda: run.let_in(lock)) if first else (lambda: None))


def _launch() -> str:
    """What the workers of one launch have in common and no other launch has."""
    return os.environ.get("LOCKSTEP_LAUNCH") or os.environ["TORCHFT_LIGHTHOUSE"]


def _settled(run: RunDirectory, launch: str | None) -> bool:
    """Has a worker of this launch made the records? The last of them tells."""
    environment = read_json(run.environment) or {"choices": {}}
    return launch is not None and environment["choices"].get("launch") == launch


def _train(
    config: RunConfig,
    run: RunDirectory,
    team: "Team",
    mirror: "Mirror | None",
    recorded: Callable[[], None] = lambda: None,
) -> str:
    import torch

    from lockstep.parallel.registry import make_strategy
    from lockstep.tasks.registry import make_task
    from lockstep.train.loop import Loop
    from lockstep.train.precision import emulated, products
    from lockstep.train.probes import Probes
    from lockstep.watch.journal import Journal

    party = team.party()
    choices = party.primary_does(lambda: _choose(run, config, team))
    threads = choices["threads"][str(team.size)]
    torch.set_num_threads(threads)
    if config.train.deterministic:  # even turning it off would import torch's compiler: two seconds
        torch.use_deterministic_algorithms(True)
    batch = config.batch.model_copy(update=choices["batch"])
    task = party.all_do(lambda: make_task(config.model_copy(update={"batch": batch})))
    digest = task.data_facts["digest"]
    if set(party.gather(digest)) != {digest}:
        raise LockstepError("The workers see different corpora.", "Prepare it once and share it, or copy it.")
    strategy = make_strategy(config.strategy.model_copy(update={"every": choices["every"]}), team.size)
    hosts = party.gather(_host_facts(team.device))
    changed = party.primary_does(lambda: _record(run, config, choices, task, hosts))
    recorded()
    journal = party.all_do(lambda: Journal(run.journal, team.rank))
    journal.write(
        "run",
        attempt=choices["launches"],
        workers=team.size,
        servers=team.servers,
        pid=os.getpid(),
        restarts=int(os.environ.get("LOCKSTEP_RESTARTS") or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        strategy=strategy.name,
        exact=strategy.exact,
        precision=choices["precision"],
        emulated=emulated(choices["precision"], team.device),
        threads=threads,
        unit=task.unit,
        metric=task.metric,
        higher_is_better=task.higher_is_better,
        without=left_out(),
        changed=changed,
    )
    try:
        devices, meet = [facts["device_name"] for facts in hosts], strategy.together and not team.apart
        probes = Probes(run, team, journal, choices, devices, meet, config.watch.probe)
        first_of_host = _first_of_host(team, [facts["host"] for facts in hosts])
        precision, attempt = choices["precision"], choices["launches"]
        loop = Loop(
            config, run, task, strategy, team, journal, precision, attempt, probes, mirror, tells_of_host=first_of_host
        )
        gc.enable()
        with products(choices["precision"], team.device):
            return loop.train()
    except OSError as error:
        raise LockstepError(
            f"{error.filename or f'The run folder {run.path}'}: {error.strerror}.",
            "Nothing before the last checkpoint is lost: make room and start the same command again.",
        ) from None
    finally:
        journal.close()


def _enter(run: RunDirectory, config: RunConfig, url: str | None) -> "tuple[TextIO, Mirror | None]":
    """Locks the folder, brings it up to date when it mirrors an address, and checks that this run may go on there."""
    run.create()
    if url is None:
        _check_foreign(run)
        lock = run.lock()
        _check_state(run, config)
        return lock, None
    from lockstep.remote.mirror import Mirror

    mirror = Mirror(url, run)
    lock = run.lock()
    try:
        mirror.open()
        _check_foreign(run)
        _check_state(run, config)
    except BaseException:
        mirror.close(failing=True)
        raise
    return lock, mirror


def _check_shared(run: RunDirectory, url: str, launch: str) -> None:
    from lockstep.remote.mirror import MARKER

    if (read_json(run.path / MARKER) or {}).get("launch") != launch:
        raise LockstepError(
            f"{socket.gethostname()} does not see the folder {run.path} of the first worker, in which {url} works.",
            "Set LOCKSTEP_CACHE to a folder that all machines share.",
        )


def _check_foreign(run: RunDirectory) -> None:
    if run.config.exists() and not run.choices.exists():
        raise LockstepError(
            f"{run.path} holds a config.yaml that is not a run's and would be overwritten.",
            "Choose another --run folder.",
            code=2,
        )


def _check_state(run: RunDirectory, config: RunConfig) -> None:
    check_resume(run, config)
    if left_out() and _has_checkpoint(run):
        raise LockstepError(
            f"LOCKSTEP_WITHOUT is set, and the run {run.name} has a checkpoint that such a run would go on from.",
            "Choose another --run folder, or unset it.",
            code=2,
        )


def _choose(run: RunDirectory, config: RunConfig, team: "Team") -> dict[str, Any]:
    """Makes every choice once: what a run with a checkpoint has chosen before is kept."""
    from lockstep.train.precision import resolve

    known = read_json(run.choices) or {"launches": 0}
    if team.apart and _settled(run, _launch()):
        return known
    choices: dict[str, Any] = known if _has_checkpoint(run) else {"launches": known["launches"]}
    choices["launches"] += 1
    choices.pop("launch", None)
    if team.apart:
        choices["launch"] = _launch()
    if config.train.precision != "auto":
        choices["precision"] = config.train.precision
    choices.setdefault("precision", resolve("auto", team.device))
    threads = choices.setdefault("threads", {})
    if config.train.threads is not None:
        threads[str(team.size)] = config.train.threads
    here = int(os.environ.get("LOCAL_WORLD_SIZE", team.size))
    threads.setdefault(str(team.size), max(1, len(os.sched_getaffinity(0)) // here))
    if config.strategy.every is not None:
        choices["every"] = config.strategy.every
    choices.setdefault("every", max(1, min(500, config.train.steps // 20)))
    factor = team.size if config.batch.per == "worker" else 1
    budgets = {"words": config.batch.words, "sentences": config.batch.sentences, "images": config.batch.images}
    choices.setdefault("batch", {name: n and n * factor for name, n in budgets.items()} | {"per": "global"})
    return choices


def _record(
    run: RunDirectory, config: RunConfig, choices: dict[str, Any], task: "Task", hosts: list[dict[str, Any]]
) -> dict[str, tuple[Any, Any]]:
    """Writes down what this launch is; returns the settings that changed since the last one."""
    known = read_json(run.data)
    old, new = known and known["digest"], task.data_facts["digest"]
    if _settled(run, choices.get("launch")):
        if old != new:
            raise LockstepError("The workers see different corpora.", "Prepare it once and share it, or copy it.")
        return {}
    if old != new and known is not None and _has_checkpoint(run):
        raise LockstepError(
            f"The run {run.name} was trained on another corpus (digest {old[:12]}, now {new[:12]}).",
            "Choose another --run folder, or restore the corpus.",
            code=2,
        )
    places = {
        name: kept if is_remote(kept) else found.absolute()
        for name, kept, found in (
            ("folder", config.data.folder, Path(config.data.folder)),
            ("corpus", config.data.corpus, task.data_folder),
        )
    }
    if config.data.images is not None:
        places["images"] = config.data.images.absolute()
    config = config.model_copy(update={"data": config.data.model_copy(update=places)})
    changed = differences(_config_of(run), config)[1] if run.config.exists() else {}
    write_json(run.choices, choices)
    write_whole(run.config, config.to_yaml())
    write_json(run.data, task.data_facts)
    write_json(run.environment, _environment(hosts, choices))
    return changed


def _has_checkpoint(run: RunDirectory) -> bool:
    return any(run.checkpoints.glob("step-*"))


def _config_of(run: RunDirectory) -> RunConfig:
    return build(read_yaml(run.config), str(run.config))


def _first_of_host(team: "Team", hosts: list[str]) -> bool:
    """Does this worker watch its host for the others there? Workers that come and go only know their own number on it."""
    if team.apart:
        return os.environ.get("LOCAL_RANK", "0") == "0"
    return hosts.index(hosts[team.rank]) == team.rank


def _host_facts(device: "torch.device") -> dict[str, Any]:
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts = {"host": socket.gethostname(), "device": str(device), "device_name": name, "cores": os.cpu_count()}
    return facts | {"memory": memory}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _environment(hosts: list[dict[str, Any]], choices: dict[str, Any]) -> dict[str, Any]:
    from importlib.metadata import version

    names = ("lockstep-train", "torch", "numpy", "sentencepiece", "sacrebleu", "safetensors")
    versions = {"python": platform.python_version()} | {name: version(name) for name in names}
    return {"versions": versions, "platform": platform.platform(), "workers": hosts, "choices": choices}


def main() -> None:
    """The entry of a launched worker. A failure goes to the launcher by the file it named, and is printed there."""
    die_with_parent()
    code = 0
    try:
        train(RunConfig.model_validate(json.loads(sys.argv[2])), sys.argv[1])
    except LockstepError as error:
        tell_launcher(error)
        code = error.code
    except KeyboardInterrupt:
        code = 130
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(
        code
    )  # all is saved and closed; what torch's threads do while Python takes itself apart has ended in SIGABRT


def tell_launcher(error: LockstepError) -> None:
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path is None:
        print(error, file=sys.stderr)
        return
    kind = "lost" if isinstance(error, LostPeer) else "port" if isinstance(error, PortTaken) else "error"
    facts = {"kind": kind, "message": error.message, "remedy": error.remedy, "code": error.code}
    write_json(Path(path), {"message": json.dumps(facts), "timestamp": int(time.time())})


if __name__ == "__main__":
    main()
