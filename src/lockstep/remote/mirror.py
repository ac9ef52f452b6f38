"""Mirrors the local folder of a run to an object store.

On the store a checkpoint's manifest is written last and deleted first: a checkpoint without a manifest does not exist. The
store has the authoritative state. A local folder is continued only if it belongs to the last launch on the store.
Otherwise it is moved aside and the state is fetched, so that an old copy never overwrites the work of another machine.
"""

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from lockstep import faults
from lockstep.errors import LockstepError
from lockstep.files import read_json, sync, write_json
from lockstep.notices import warn
from lockstep.remote.lease import NAME as LEASE
from lockstep.remote.lease import Lease
from lockstep.remote.store import Store, StoredObject
from lockstep.run.checkpoint import Checkpoint, find_newest_whole, parse
from lockstep.run.directory import RunDirectory
from lockstep.run.journal import Event
from lockstep.run.outbox import NAME as OUTBOX
from lockstep.run.retention import Keep

PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Between the attempts of an upload. The library of the store retries too."""
MARKER = ".mirror.json"


class Mirror:
    """Used by the primary worker only. Uploads run in a thread, one at a time; `take_events` reports their outcome."""

    def __init__(self, url: str, run: RunDirectory) -> None:
        self.store = Store(url)
        self.run = run
        self._lease = Lease(self.store)
        self._committed: dict[str, Checkpoint] = {}  # the checkpoints on the store, by name
        self._sent: dict[
            str, tuple[int, int]
        ] = {}  # size and modification time of the small files when they were last sent
        self._thread: threading.Thread | None = None
        self._events: deque[Event] = deque()
        self._failed: LockstepError | None = None

    @property
    def launch(self) -> str:
        """The identifier of this launch, which is in the lease and in the marker of the local folder."""
        return self._lease.launch

    def open(self) -> None:
        """Takes the lease and brings the local folder up to date. It must be called before the folder is read."""
        self._lease.take(warn)
        marker = self.run.path / MARKER
        local = read_json(marker) or {}
        if local.get("launch") != self._lease.previous_launch:
            self._move_aside()
        self._fetch_state()
        write_json(marker, {"url": self.store.url, "launch": self.launch})

    def _move_aside(self) -> None:
        aside = self.run.path.with_name(f"{self.run.path.name}.aside")
        paths = [path for path in self.run.path.iterdir() if path.name not in (".lock", OUTBOX)]
        if any(self.run.checkpoints.glob("step-*")):
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            warn(f"The copy of {self.store.url} on this machine is not its latest state: moved to {aside}.")
            for path in paths:
                path.rename(aside / path.name)
        for path in paths:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _fetch_state(self) -> None:
        """Fetches the small files if there are none, and the newest intact checkpoint if it is newer than the local one."""
        objects = self.store.list()
        if not self.run.config.exists():
            for name in objects:
                if name != LEASE and not name.startswith(("checkpoints/", ".")):
                    self.store.fetch(name, self.run.path / name)
        skipped = self._read_manifests(objects)
        local, _ = find_newest_whole(self.run.checkpoints)
        for name in sorted(self._committed, reverse=True):
            if local is not None and self._committed[name].step <= local.step:
                return
            damage = self._fetch_checkpoint(name, objects)
            if damage is None:
                return
            skipped.append(self._report_skipped(name, damage))
            del self._committed[name]
        if skipped and local is None:
            raise LockstepError(
                f"No checkpoint in {self.store.url} is intact ({'; '.join(skipped)}).",
                "To start from the beginning, delete them or choose another --run.",
            )

    def _read_manifests(self, objects: dict[str, StoredObject]) -> list[str]:
        """Reads the manifests on the store; returns a remark on each one that cannot be parsed."""
        skipped = []
        for name in objects:
            match name.split("/"):
                case ["checkpoints", folder, "manifest.json"]:
                    saved = parse(Path(folder), self.store.read(name) or b"")
                    if saved is None:
                        skipped.append(self._report_skipped(folder, "no readable manifest"))
                    else:
                        self._committed[folder] = saved
        return skipped

    def _report_skipped(self, name: str, damage: str) -> str:
        detail = f"Checkpoint {name} on {self.store.url} is skipped: {damage}."
        self._add_fault("damaged checkpoint on the store", detail, None)
        return f"{name}: {damage}"

    def _fetch_checkpoint(self, name: str, objects: dict[str, StoredObject]) -> str | None:
        """Fetches a checkpoint into a temporary folder, verifies it and renames the folder; returns its damage, if any."""
        manifest = self._committed[name].manifest
        aside, final = self.run.checkpoints / f".{name}.partial", self.run.checkpoints / name
        shutil.rmtree(aside, ignore_errors=True)
        for file in ("manifest.json", *manifest["files"]):
            if f"checkpoints/{name}/{file}" not in objects:
                return f"{file} is missing"
            self.store.fetch(f"checkpoints/{name}/{file}", aside / file)
            sync(aside / file)
        damage = Checkpoint(aside, manifest).damage()
        if damage is None:
            shutil.rmtree(final, ignore_errors=True)  # only a damaged one can exist here
            aside.rename(final)
            sync(final.parent)
            warn(f"Fetched {name} from {self.store.url}.")
        return damage

    def upload(self, saved: Checkpoint, keep: Keep) -> None:
        """Copies a checkpoint to the store in the background, after uploads that are in progress. Then checkpoints on the
        store that `keep` does not return are deleted."""
        arguments = (saved, keep, self._thread)
        self._thread = threading.Thread(target=self._upload, args=arguments, name="upload", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until no upload is in progress, at most `seconds`; returns whether none is. Local checkpoints must not be
        deleted before."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    def take_events(self) -> list[Event]:
        """Returns the events since the last call. Raises when another launch has taken the run over."""
        if self._lease.lost:
            self._lease.check()
        return [self._events.popleft() for _ in range(len(self._events))]

    def close(self, failing: bool) -> list[Event]:
        """Waits for the last upload, sends journal and log, and releases the lease; returns the last events. Raises when
        the last checkpoint is not on the store, unless the launch is `failing` for another reason."""
        if not self._lease.is_taken:
            return []
        self.wait()
        try:
            if failing or self._failed:
                self._finish()
            else:
                self._retry(self._finish, "the journal")
        except LockstepError as error:
            self._failed = self._failed or error
        if self._failed and not failing:
            raise self._failed
        return list(self._events)

    def _finish(self) -> None:
        self._lease.check()
        self._send_small_files()
        self._lease.release()

    def _upload(self, saved: Checkpoint, keep: Keep, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()
        begin, name, sent = time.perf_counter(), saved.path.name, set[str]()
        known = self._committed.get(name)
        if known is not None and known.manifest == saved.manifest:
            return
        if known is not None and known.manifest["files"] == saved.manifest["files"]:
            sent.update(known.manifest["files"])  # only the manifest has changed, by a new score
        size = 0 if sent else saved.bytes
        try:
            self._retry(lambda: self._send(saved, sent), name)
        except LockstepError as error:
            self._failed = LockstepError(
                f"The checkpoint {name} could not be uploaded to {self.store.url}: {error.message}",
                f"It is complete in {saved.path}: start the same command again on this machine to upload it.",
            )
            self._add_fault("upload failed", self._failed.message, saved.step)
            return
        self._failed = None
        seconds = time.perf_counter() - begin
        self._events.append(Event("upload", facts={"step": saved.step, "bytes": size, "seconds": seconds}))
        try:
            self._prune(name, keep)
        except LockstepError as error:
            self._add_fault("old checkpoints not deleted", error.message, saved.step)

    def _retry(self, action: Callable[[], None], what: str) -> None:
        """Repeats an action that fails, with growing pauses. It gives up at once when the run was taken over."""
        for attempt, pause in enumerate((*PAUSES_SECONDS, None)):
            try:
                action()
                return
            except Exception as error:  # no failure of the store may stop the training
                if pause is None or self._lease.lost:
                    raise error if isinstance(error, LockstepError) else LockstepError(f"{error}.") from None
                if attempt == 0:
                    detail = f"Uploading {what} failed and is tried again: {str(error).splitlines()[0]}"
                    self._add_fault("upload is tried again", detail, None)
                time.sleep(pause)

    def _send(self, saved: Checkpoint, sent: set[str]) -> None:
        """Sends all files, then the small files of the run, then the manifest, which commits the checkpoint. `sent` has the
        files that the store already has."""
        folder = f"checkpoints/{saved.path.name}"
        self._lease.check()
        for name in saved.manifest["files"]:
            if name not in sent:
                self.store.send(saved.path / name, f"{folder}/{name}")
                sent.add(name)
            faults.at("upload", saved.step)
        self._send_small_files()
        self._lease.check()
        faults.at("commit", saved.step)
        self.store.send(saved.path / "manifest.json", f"{folder}/manifest.json")
        self._committed[saved.path.name] = saved

    def _send_small_files(self) -> None:
        """Sends all changed files except checkpoints. config.yaml comes last: with it the run is listed."""
        run = self.run
        logs = [*sorted(run.journal.glob("*.jsonl")), *sorted(run.tensorboard.glob("*"))]
        for path in (run.choices, run.data, run.environment, run.streams, *logs, run.console, run.config):
            if not path.is_file():
                continue
            name, stat = str(path.relative_to(run.path)), path.stat()
            state = (stat.st_size, stat.st_mtime_ns)
            if self._sent.get(name) != state:
                self.store.write(name, path.read_bytes())  # a snapshot in memory, because workers append to it
                self._sent[name] = state

    def _prune(self, newest: str, keep: Keep) -> None:
        """Deletes the checkpoints on the store that are not retained, and the remains of killed uploads."""
        committed = [self._committed[name] for name in sorted(self._committed)]
        retained = {path.name for path in keep(committed)} | {newest}
        obsolete = [name for name in self.store.list("checkpoints") if name.split("/")[1] not in retained]
        self.store.remove(sorted(obsolete, key=lambda name: not name.endswith("/manifest.json")))  # manifests first
        self._committed = {name: saved for name, saved in self._committed.items() if name in retained}

    def _add_fault(self, what: str, detail: str, step: int | None) -> None:
        self._events.append(Event("fault", detail, {"what": what, "detail": detail, "step": step}))
