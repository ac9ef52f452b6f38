"""A run on an object store: it works in a local folder, and this copies the folder there and back.

On the store a checkpoint's manifest is written last and deleted first: a checkpoint without one is not there. The store
is the truth. The local folder is used as it is only when the last launch on the store was this folder's own; otherwise
it is moved aside and the store's state is fetched, so that an old copy never overwrites what another machine did.
"""

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep import faults
from lockstep.errors import LockstepError
from lockstep.files import read_json, sync, write_json
from lockstep.notices import warn
from lockstep.remote.lease import NAME as LEASE
from lockstep.remote.lease import Lease
from lockstep.remote.store import Store, StoredObject
from lockstep.run.checkpoint import Checkpoint, find_newest_whole, parse
from lockstep.run.directory import RunDirectory

PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Between the attempts of an upload; the store's own library has its retries besides."""
MARKER = ".mirror.json"
Keep = Callable[[list[Checkpoint]], set[Path]]


@dataclass(frozen=True)
class News:
    """Something that happened beside the training: for the journal, and for the terminal when it has a sentence."""

    kind: str
    sentence: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class Mirror:
    """Used by the primary worker only. Uploads run in a thread, one at a time; `news` tells how they went."""

    def __init__(self, url: str, run: RunDirectory) -> None:
        self.store = Store(url)
        self.run = run
        self._lease = Lease(self.store)
        self._committed: dict[str, Checkpoint] = {}  # what the store has, by name
        self._sent: dict[str, tuple[int, int]] = {}  # size and time of the small files as they were last sent
        self._thread: threading.Thread | None = None
        self._news: deque[News] = deque()
        self._failed: LockstepError | None = None

    @property
    def launch(self) -> str:
        """This launch's own name, which the working folder's marker and the lease carry."""
        return self._lease.launch

    def open(self) -> None:
        """Takes the lease and brings the local folder up to date. Nobody may have read the folder yet."""
        self._lease.take(warn)
        marker = self.run.path / MARKER
        mine = read_json(marker) or {"launch": None}
        if mine["launch"] != self._lease.before:
            self._move_aside()
        self._bring()
        write_json(marker, {"url": self.store.url, "launch": self.launch})

    def _move_aside(self) -> None:
        aside = self.run.path.with_name(f"{self.run.path.name}.aside")
        found = [path for path in self.run.path.iterdir() if path.name != ".lock"]
        if any(self.run.checkpoints.glob("step-*")):
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            warn(f"The copy of {self.store.url} on this machine is not its latest state: moved to {aside}.")
            for path in found:
                path.rename(aside / path.name)
        for path in found:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _bring(self) -> None:
        objects = self.store.list()
        if not self.run.config.exists():
            for name in objects:
                if name != LEASE and not name.startswith(("checkpoints/", ".")):
                    self.store.fetch(name, self.run.path / name)
        passed = self._read_manifests(objects)
        local, _ = find_newest_whole(self.run.checkpoints)
        for name in sorted(self._committed, reverse=True):
            if local is not None and self._committed[name].step <= local.step:
                return
            damage = self._fetch_checkpoint(name, objects)
            if damage is None:
                return
            passed.append(self._pass_over(name, damage))
            del self._committed[name]
        if passed and local is None:
            raise LockstepError(
                f"No checkpoint in {self.store.url} is whole ({'; '.join(passed)}).",
                "Delete what is there, or choose another --run, to start from the beginning.",
            )

    def _read_manifests(self, objects: dict[str, StoredObject]) -> list[str]:
        """Learns what the store has; returns a remark on each checkpoint whose manifest cannot be understood."""
        passed = []
        for name in objects:
            match name.split("/"):
                case ["checkpoints", folder, "manifest.json"]:
                    saved = parse(Path(folder), self.store.read(name) or b"")
                    if saved is None:
                        passed.append(self._pass_over(folder, "no readable manifest"))
                    else:
                        self._committed[folder] = saved
        return passed

    def _pass_over(self, name: str, damage: str) -> str:
        detail = f"Checkpoint {name} on {self.store.url} is passed over: {damage}."
        self._fault("damaged checkpoint on the store", detail, None)
        return f"{name}: {damage}"

    def _fetch_checkpoint(self, name: str, objects: dict[str, StoredObject]) -> str | None:
        """Fetches a checkpoint aside, checks every byte and renames it; returns what is wrong with it, if anything."""
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
            shutil.rmtree(final, ignore_errors=True)  # only a damaged one can be there
            aside.rename(final)
            sync(final.parent)
            warn(f"Fetched {name} from {self.store.url}.")
        return damage

    def upload(self, saved: Checkpoint, keep: Keep) -> None:
        """Copies a checkpoint to the store in the background, as far as it is not there, after what is under way; `keep`
        chooses which others stay."""
        arguments = (saved, keep, self._thread)
        self._thread = threading.Thread(target=self._upload, args=arguments, name="upload", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Until no upload is under way, or for so long; returns whether none is. Nothing local may be deleted before."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    def news(self) -> list[News]:
        """What happened since the last call. Raises when another launch has taken the run over."""
        if self._lease.lost:
            self._lease.check()
        return [self._news.popleft() for _ in range(len(self._news))]

    def close(self, failing: bool) -> list[News]:
        """Waits for the last upload, sends journal and log, gives the lease back; returns the last news. Raises when the
        last checkpoint is not on the store, unless the launch is `failing` for another reason anyway."""
        if not self._lease.taken:
            return []
        self.wait()
        try:
            if failing or self._failed:
                self._farewell()
            else:
                self._patiently(self._farewell, "the journal")
        except LockstepError as error:
            self._failed = self._failed or error
        if self._failed and not failing:
            raise self._failed
        return list(self._news)

    def _farewell(self) -> None:
        self._lease.check()
        self._send_small_files()
        self._lease.release()

    def _upload(self, saved: Checkpoint, keep: Keep, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        begin, name, sent = time.perf_counter(), saved.path.name, set[str]()
        known = self._committed.get(name)
        if known is not None and known.manifest == saved.manifest:
            return
        if known is not None and known.manifest["files"] == saved.manifest["files"]:
            sent.update(known.manifest["files"])  # only what is known of it has changed
        size = 0 if sent else saved.bytes
        try:
            self._patiently(lambda: self._send(saved, sent), name)
        except LockstepError as error:
            self._failed = LockstepError(
                f"The checkpoint {name} could not be uploaded to {self.store.url}: {error.message}",
                f"It is safe in {saved.path}: start the same command again on this machine to upload it.",
            )
            self._fault("upload failed", self._failed.message, saved.step)
            return
        self._failed = None
        facts = {"step": saved.step, "bytes": size, "seconds": time.perf_counter() - begin}
        self._news.append(News("upload", facts=facts))
        try:
            self._prune(name, keep)
        except LockstepError as error:
            self._fault("old checkpoints not deleted", error.message, saved.step)

    def _patiently(self, action: Callable[[], None], what: str) -> None:
        """Repeats what the store refuses, with growing pauses; a run that was taken over is given up at once."""
        for attempt, pause in enumerate((*PAUSES_SECONDS, None)):
            try:
                action()
                return
            except Exception as error:  # whatever it is, training goes on
                if pause is None or self._lease.lost:
                    raise error if isinstance(error, LockstepError) else LockstepError(f"{error}.") from None
                if attempt == 0:
                    detail = f"Uploading {what} failed and is tried again: {str(error).splitlines()[0]}"
                    self._fault("upload is tried again", detail, None)
                time.sleep(pause)

    def _send(self, saved: Checkpoint, sent: set[str]) -> None:
        """All files, then what the rest of the run needs, then the manifest: with it the checkpoint exists."""
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
        """Everything but checkpoints, as far as it changed. config.yaml comes last: with it the run shows."""
        run = self.run
        logs = [*sorted(run.journal.glob("*.jsonl")), *sorted(run.tensorboard.glob("*"))]
        for path in (run.choices, run.data, run.environment, *logs, run.console, run.config):
            if not path.is_file():
                continue
            name, facts = str(path.relative_to(run.path)), path.stat()
            state = (facts.st_size, facts.st_mtime_ns)
            if self._sent.get(name) != state:
                self.store.write(name, path.read_bytes())  # read at once, because others append to it meanwhile
                self._sent[name] = state

    def _prune(self, newest: str, keep: Keep) -> None:
        """Deletes what `keep` does not choose among the store's checkpoints, and what a killed upload left."""
        kept = {path.name for path in keep([self._committed[name] for name in sorted(self._committed)])} | {newest}
        doomed = [name for name in self.store.list("checkpoints") if name.split("/")[1] not in kept]
        self.store.remove(sorted(doomed, key=lambda name: not name.endswith("/manifest.json")))
        self._committed = {name: saved for name, saved in self._committed.items() if name in kept}

    def _fault(self, what: str, detail: str, step: int | None) -> None:
        self._news.append(News("fault", detail, {"what": what, "detail": detail, "step": step}))
