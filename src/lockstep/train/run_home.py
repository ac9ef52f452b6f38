"""Where the run folder is, for each worker: here, or on the host of the first worker.

At the start the first worker writes a file with a random name, and the others look for it. A name that nobody has asked for
before is in no cache, so a network file system shows it at once. Whoever does not see it writes its journal into an outbox
(`run/outbox.py`), sends its parts of checkpoints to the service of the run folder (`run_service`), and reads none of the
files that are in its own folder of that name.
"""

import secrets
import shutil
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypedDict

from lockstep import heartbeat
from lockstep.config import RunConfig
from lockstep.errors import LockstepError
from lockstep.files import locked
from lockstep.job_secret import read_secret, sign
from lockstep.notices import warn
from lockstep.own_address import find_own_addresses
from lockstep.remote.place import is_remote
from lockstep.run import environment_variables, outbox
from lockstep.run.checkpoint import Checkpoint, list_all
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import worker_file
from lockstep.run_service.run_client import RunClient, ServiceAddress, fetch_file
from lockstep.run_service.service import ServiceProcess
from lockstep.run_service.shipper import RemoteStreams, Shipper, send_earlier
from lockstep.run_service.streams import Streams
from lockstep.train.choices import read_choices

if TYPE_CHECKING:
    from lockstep.team import Team

LOOK_SECONDS = 1.0
"""How long a worker looks for the first worker's file."""
ANSWER_SECONDS = 120.0
FETCHED = "fetched"
SEEN = ".seen-"


class RunState(TypedDict):
    """What a folder knows of a run."""

    run: str
    launch: str
    launches: int
    step: int | None  # of the last checkpoint


def read_state(run: RunDirectory) -> RunState:
    choices = read_choices(run) if run.config.exists() else None
    saved = list_all(run.checkpoints)
    step = saved[-1].step if saved else None
    if choices is None:
        return {"run": "", "launch": "", "launches": 0, "step": step}
    return {"run": choices.run, "launch": choices.launch, "launches": choices.launches, "step": step}


@dataclass
class RunHome:
    """Where this worker writes. Made by `find_home`."""

    run: RunDirectory  # the run folder, or a local folder with an outbox
    is_shared: bool = True  # all workers see the run folder
    service: ServiceAddress | None = None  # None: this worker sees it
    process: ServiceProcess | None = None  # of the first worker, if others do not see it
    own: RunDirectory | None = None  # where this worker writes journal and log
    _shipper: Shipper | None = None
    _hold: TextIO | None = None

    def join(self, team: "Team", run_id: str, launch: str) -> RunDirectory:
        """Called when the records of this launch are written. Returns the folder for journal and log of this worker. Lines
        that this host has left over from earlier launches are in the run folder afterwards."""
        self.own = self.run
        if self.service is not None:
            self.own = RunDirectory(
                self._join_remotely(self.service, team.rank, outbox.OutboxMember(run_id, self.service.host, launch))
            )
        return self.own

    def _join_remotely(self, service: ServiceAddress, rank: int, member: outbox.OutboxMember) -> Path:
        folder = self.run.path
        with locked(folder / f"{outbox.NAME}.lock"), RunClient(service) as client:
            own, streams = outbox.join_run(folder, member), RemoteStreams(client)
            self._hold = outbox.hold(own)
            send_earlier(folder, member.launch, streams)  # only one worker of this host finds something
            streams.open(name_journal(rank), member.launch)  # what comes later comes behind it
        return own

    def start_shipping(self, rank: int) -> None:
        """Sends the journal and the log of this worker from now on, if its host does not share the run folder."""
        if self.service is not None and self.own is not None:
            names = [name_journal(rank), f"logs/worker-{rank:04d}.log"]
            is_first = environment_variables.local_rank() == 0
            self._shipper = Shipper(self.service, self.own.path, names, is_first)

    def finish(self, is_done: bool) -> None:
        """Sends the last lines. After it, `close` may be called on the first worker."""
        shipper, self._shipper = self._shipper, None
        if shipper is not None:
            try:
                shipper.close(is_done)
            except OSError as error:
                raise LockstepError(
                    f"The last lines of the journal could not be sent: {error.strerror}.",
                    "They are kept, and the next launch of this host sends them.",
                ) from None
            finally:
                if self._hold is not None:
                    self._hold.close()

    def close(self) -> None:
        """Ends the service."""
        if self.process is not None:
            self.process.close()
            self.process = None

    def fetch(self, team: "Team", checkpoint: Checkpoint) -> Checkpoint:
        """Called by all workers together: returns the checkpoint, with its state in a folder of this host. It takes turns,
        so that a slow network does not look like a lost worker."""
        if self.is_shared:
            return checkpoint
        failures: list[OSError] = []
        copy = self._find_copy(checkpoint)

        def work() -> None:
            try:
                if self.service is not None:
                    _fetch_state(self.service, checkpoint, copy)
            except OSError as error:
                failures.append(error)

        thread = threading.Thread(target=work, name="fetch", daemon=True)
        thread.start()
        while True:
            thread.join(min(5.0, team.timeout_seconds / 4))
            heartbeat.beat("save")
            if not any(team.gather(thread.is_alive())):
                break
        team.all_do(lambda: _raise(failures))
        return checkpoint if self.service is None else Checkpoint(copy, checkpoint.manifest)

    def _find_copy(self, checkpoint: Checkpoint) -> Path:
        assert self.own is not None
        return self.own.path / FETCHED / checkpoint.path.name

    def drop_copy(self, team: "Team") -> None:
        """Called by all workers together: removes what `fetch` has fetched, when all have read it."""
        if not self.is_shared:
            team.gather(None)
            if self.service is not None and self.own is not None:
                shutil.rmtree(self.own.path / FETCHED, ignore_errors=True)


def name_journal(rank: int) -> str:
    return str(worker_file(Path("journal"), rank))


def _raise(failures: list[OSError]) -> None:
    for error in failures:
        raise LockstepError(
            f"{socket.gethostname()} could not fetch the checkpoint: {error.strerror}.",
            "Start the same command again.",
        )


def _fetch_state(service: ServiceAddress, checkpoint: Checkpoint, copy: Path) -> None:
    """Fetches the state of a checkpoint, once for all workers of this host."""
    with locked(copy.parent.parent / f".{FETCHED}.lock"):
        if copy.exists():
            return
        partial = copy.with_name(f".{copy.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "state").mkdir(parents=True)
        with RunClient(service) as client:
            for name, facts in checkpoint.manifest["files"].items():
                if name.startswith("state/"):
                    fetch_file(client, checkpoint.path.name, name, facts, partial / name)
        partial.rename(copy)


def find_home(team: "Team", run: RunDirectory, config: RunConfig) -> tuple[RunHome, RunConfig]:
    """Finds out which workers see the first worker's run folder, and starts its service if some do not. Called by all
    workers, when the first one has the lock of the run. Returns the config with the first worker's version of the data
    preparation, which follows from the run folder."""
    team.all_do(lambda: _take_home(run) if team.primary else None)
    home = RunHome(run)
    if team.size == 1 or environment_variables.local_world_size(default=0) == team.size + team.servers:
        return home, config
    sees = _find_viewers(team, run)
    home.is_shared = all(sees)
    if home.is_shared:
        return home, config
    state = team.primary_does(lambda: dict(read_state(run)))
    failure = team.all_do(lambda: None if sees[team.rank] else check_local_copy(run, state))
    for sentence in filter(None, team.gather(failure)):
        raise LockstepError(sentence, "Start the first worker there, or move that folder away.", code=2)
    service = _start_service(team, home, run, sees.count(False))
    if not sees[team.rank]:
        home.service = service
    team.all_do(lambda: _try_service(home))
    others = sorted(set(filter(None, team.gather("" if sees[team.rank] else socket.gethostname()))))
    if team.primary:
        do = "do" if len(others) > 1 else "does"
        warn(
            f"{' and '.join(others)} {do} not share {run.path}: what the workers write there is sent to {service.host}."
        )
    behaviour = team.gather([config.data.cleaning, config.search.normalise])[0]
    data = config.data.model_copy(update={"cleaning": behaviour[0]})
    search = config.search.model_copy(update={"normalise": behaviour[1]})
    return home, config.model_copy(update={"data": data, "search": search})


def _take_home(run: RunDirectory) -> None:
    """Makes this host the one of the run folder. Refuses where it is known to be on another host."""
    member = outbox.read_membership(run.path)
    if member is not None and not is_remote(run.name):
        own = read_state(run)
        if (own["run"], own["launch"]) != (member.run, member.launch):
            raise LockstepError(
                f"The run folder {run.name} is on {member.home}: {socket.gethostname()} has only been sending to it.",
                f"Start the first worker on {member.home}. If that host is gone, bring its folder here and remove "
                f"{run.path / outbox.NAME}.",
                code=2,
            )
    for leftover in run.path.glob(f"{SEEN}*"):
        leftover.unlink(missing_ok=True)
    streams = Streams(run)
    streams.end_all()
    if member is not None:
        send_earlier(run.path, "", streams)
        outbox.leave(run.path)


def _find_viewers(team: "Team", run: RunDirectory) -> list[bool]:
    """Returns for each worker whether it sees the first worker's run folder."""
    name = team.gather(f"{SEEN}{secrets.token_hex(16)}")[0]
    token = run.path / name
    team.all_do(lambda: token.touch() if team.primary else None)
    deadline = time.monotonic() + LOOK_SECONDS
    while not (does_see := token.exists()) and time.monotonic() < deadline:
        time.sleep(0.1)
    sees = team.gather(does_see)
    if team.primary:
        token.unlink()
    return sees


def check_local_copy(run: RunDirectory, home: Mapping[str, Any]) -> str | None:
    """Returns why the folder of this host must not be passed over: it has another run, or a newer state of this one. `home`
    is the state of the first worker's folder. An older copy is left alone, and not read."""
    if is_remote(run.name):
        return None  # the store has the state
    own, host = read_state(run), socket.gethostname()
    if own["step"] is None or own["launch"] == home["launch"]:
        return None
    where = f"{run.path} on {host} has a checkpoint of step {own['step']:,}"
    if home["step"] is None:
        return f"{where}, and the folder of the first worker's host has none."
    if own["run"] != home["run"]:
        return f"{where}, of another run than the folder of the first worker's host."
    if own["launches"] > home["launches"]:
        return f"{where}, of a later launch than the folder of the first worker's host."
    warn(f"{run.path} on {host} is an older copy of the run: it is not read.")
    return None


def _start_service(team: "Team", home: RunHome, run: RunDirectory, senders: int) -> ServiceAddress:
    """Starts the service on the first worker's host, and tells all workers where it is. Its key follows from the secret of
    the job, if there is one, and from something random."""
    noise = team.gather(secrets.token_hex(32))[0]
    key = sign(read_secret(), "run folder", bytes.fromhex(noise))
    public = ""

    def start() -> dict[str, Any]:
        nonlocal public
        address, public = find_own_addresses()
        home.process = ServiceProcess(run, address, key)
        return {"host": socket.gethostname()[:64], "address": public, "port": home.process.port}

    facts = team.primary_does(start)
    return ServiceAddress(
        **facts, key=key.hex(), seconds=min(ANSWER_SECONDS, team.timeout_seconds / 2), senders=senders
    )


def _try_service(home: RunHome) -> None:
    if home.service is None:
        return
    try:
        home.run.create()
        with RunClient(home.service):
            pass
    except OSError as error:
        raise LockstepError(
            f"{socket.gethostname()} does not share the run folder, and {error.strerror}.",
            f"Share {home.run.path}, or let {home.service.address} be reached: LOCKSTEP_RUN_PORT chooses the port.",
        ) from None
