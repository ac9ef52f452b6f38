"""Watches the workers of one host under torchrun, mpirun and other engines: `python -m lockstep.launch.host_monitor FACTS`.

The first worker of a host starts it as a process of its own, which outlives the workers long enough to tell the other hosts
how they ended, and then ends itself. It says who stands still or is gone in the same sentences as a local launch, in the
journal and on stderr. After a while it ends the worker that is to blame, or all of its host where nobody is, so that the
engine can start them again.
"""

import fcntl
import json
import math
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from lockstep.files import write_json
from lockstep.heartbeat import STEP_PHASES, read_heartbeat
from lockstep.launch.describe_stall import Stall
from lockstep.launch.engine import MonitorFacts
from lockstep.launch.fault_log import FaultLog
from lockstep.launch.job_watch import JobWatch, add_neighbours, describe_lost_host, name_host
from lockstep.launch.monitor_exchange import Exchange, Message, Neighbour, News
from lockstep.launch.stall_watch import CHECK_SECONDS, View, WatchedWorker
from lockstep.monitor_folder import LocalWorker, Peer, read_end, read_peers, read_workers, write_death
from lockstep.notices import warn

TICK_SECONDS = 0.25
SEND_SECONDS = 0.5
LOST_SECONDS = 8.0
"""A host is lost if its monitor was not heard for so long, while a worker of this host waits for somebody."""
WAITING_SECONDS = 5.0
"""A worker that has not moved for so long may be waiting for a lost host."""
SILENT_SECONDS = 2.5
"""A host that was not heard for so long after a connection was lost is the reason for it."""
CONSEQUENCE_SECONDS = 30.0
"""Whoever ends or waits within so many seconds after a death does so because of it."""
LINGER_SECONDS = 5.0
"""How long the monitor goes on telling after the last worker of its host is gone."""


class HostMonitor:
    """The monitor of one host."""

    def __init__(self, facts: MonitorFacts) -> None:
        self.folder, self.host = Path(facts.folder), facts.host
        self.log = FaultLog(Path(facts.journal), facts.host)
        self.exchange = Exchange(facts.address)
        self.watch = JobWatch(self.folder, facts.stall_seconds, facts.start_seconds)
        self.stall_seconds = facts.stall_seconds
        self.lost_seconds = min(LOST_SECONDS, 0.8 * facts.stall_seconds)
        self.waiting_seconds = min(WAITING_SECONDS, 0.5 * facts.stall_seconds)
        self.own: Peer = {"host": facts.host, "address": facts.public_address, "port": self.exchange.port, "ranks": []}
        self.alive: dict[int, LocalWorker] = {}
        self.seen: set[int] = set()
        self.ended: set[int] = set()  # ranks that this monitor has ended
        self.news: list[News] = []  # of this host
        self.repeated: set[tuple[str, str]] = set()  # news of others, by host and sentence
        self.lost: dict[str, float] = {}  # when hosts were last heard
        self.cause_at = -math.inf  # when it was found out why workers end
        self.lost_at = -math.inf  # when a worker said that it has lost another one
        self.named: Stall | None = None
        self.gone_at: float | None = None  # when the last worker was gone
        self.next_send = self.next_check = 0.0
        write_json(self.folder / "monitor.json", self.own)

    def run(self) -> None:
        """Watches until the workers of this host are gone and the others know."""
        while not self.take_turn():
            time.sleep(TICK_SECONDS)

    def take_turn(self) -> bool:
        """Looks, listens and tells once. Returns whether there is nothing left to do."""
        now = time.monotonic()
        self._read_workers()
        self._find_gone()
        self.exchange.receive()
        if not self.exchange.neighbours and (facts := read_peers(self.folder)) is not None:
            self.exchange.join(*facts, self.own)
        for neighbour in self.exchange.others:
            self._repeat_news(neighbour)
        if now >= self.next_check and self.alive:
            self.next_check = now + CHECK_SECONDS
            self._check(now)
        if now >= self.next_send:
            self.next_send = now + SEND_SECONDS
            self._send()
        return self._is_over(now)

    def _is_over(self, now: float) -> bool:
        if self.alive or not self.seen:
            return False
        self.gone_at = self.gone_at or now
        if not self._knows_cause(now) and self.lost_at > -math.inf:
            self._name_silent_hosts(now)
        is_peaceful = all((read_end(self.folder, rank) or ("",))[0] == "finished" for rank in self.seen)
        is_alone = all(other.message is None or other.message.is_last for other in self.exchange.others)
        if is_peaceful or is_alone:
            self._send()
            return True
        return now > self.gone_at + LINGER_SECONDS

    def _name_silent_hosts(self, now: float) -> None:
        """The workers of this host have lost a connection: a host that is not heard since then is lost."""
        for neighbour in self.exchange.others:
            heard, host = neighbour.heard_at, neighbour.peer["host"]
            if heard is None or not neighbour.is_silent(now, SILENT_SECONDS):
                continue
            self.lost[host] = heard
            sentence = f"{name_host(neighbour.peer)} is lost: its monitor went silent when the connection was lost."
            self._tell(News("host lost", sentence, None, "supported", host), since=heard, writes=self._speaks_first())

    def _read_workers(self) -> None:
        for worker in read_workers(self.folder):
            if worker.rank not in self.seen:
                self.seen.add(worker.rank)
                self.alive[worker.rank] = worker

    def _knows_cause(self, now: float) -> bool:
        """Has somebody died a moment ago? Then the others end or wait because of it, and are not to blame."""
        return now - self.cause_at < CONSEQUENCE_SECONDS

    def _find_gone(self) -> None:
        """Notices workers that are gone, and tells about the first that said nothing. Those that say that they have lost
        another one come after it."""
        gone: list[tuple[LocalWorker, str, str]] = []
        for rank, worker in list(self.alive.items()):
            is_alive = worker.process.is_alive()
            reason, sentence = read_end(self.folder, rank) or ("", "")
            if reason or not is_alive:
                del self.alive[rank]
                gone.append((worker, reason, sentence))
        for worker, reason, sentence in sorted(gone, key=lambda one: one[1] == "lost"):
            if reason == "lost":
                self.lost_at = time.monotonic()
            elif reason in ("", "failed") and worker.rank not in self.ended and not self._is_consequence():
                self._tell_death(worker, sentence if reason else None)

    def _is_consequence(self) -> bool:
        """Do workers end because of something that is known, or that another host will tell?"""
        now = time.monotonic()
        return self._knows_cause(now) or now - self.lost_at < CONSEQUENCE_SECONDS

    def _tell_death(self, worker: LocalWorker, failure: str | None) -> None:
        """Tells that a worker is gone. With a failure it has said itself why."""
        rank, who = worker.rank, f"Worker {worker.rank} (process {worker.process.pid})"
        if failure is not None:
            self._tell(News("died", f"{who} failed: {failure}", rank, "established"), says=False)
            return
        beat = read_heartbeat(self.folder, rank)
        where = f" in step {beat.step:,}" if beat is not None and beat.phase in STEP_PHASES else ""
        sentence = f"{who} is gone without a word{where}: it was killed, or crashed."
        if not worker.engine.is_alive():
            sentence = f"{who} ended with the process that had started it."
        self._tell(News("died", sentence, rank, "established"))

    def _check(self, now: float) -> None:
        """Names who stands still, here or on another host, and ends what must be ended."""
        view = self.watch.look(self._list_watched())
        add_neighbours(view, self.exchange.others, now, self.lost_seconds)
        self._name_lost_hosts(view, now)
        is_heard = all(other.message is not None for other in self.exchange.others)
        self.watch.hosts = tuple(neighbour.peer["host"] for neighbour in self.exchange.neighbours)
        self.watch.is_complete = is_heard and not self.lost and not self._knows_cause(now)
        stall = self.watch.judge(view, now)
        if stall is not None and not self._knows_cause(now) and not (self.lost and stall.rank is None):
            self.named = stall
            if stall.rank in self.alive or (stall.rank is None and self._speaks_first()):
                self._tell(News("stall", stall.sentence, stall.rank, stall.evidence), stall)
        elif self.named is not None and self.watch.stall is None:
            if self.named.rank in self.alive:
                self._say(f"Worker {self.named.rank} continues.", self.host)
                self.log.write("continues", f"Worker {self.named.rank} continues.", rank=self.named.rank)
            self.named, self.news = None, [one for one in self.news if one.what != "stall"]
        self._end_the_late(now)

    def _name_lost_hosts(self, view: View, now: float) -> None:
        """A host is lost if its monitor is silent and a worker of this host waits."""
        waiting = {rank: view.beats[rank] for rank in self.alive if rank in view.beats}
        waiting = {rank: beat for rank, beat in waiting.items() if now - beat.time > self.waiting_seconds}
        for neighbour in self.exchange.others:
            host, heard = neighbour.peer["host"], neighbour.heard_at
            is_silent = neighbour.is_silent(now, self.lost_seconds)
            if host in self.lost and not is_silent:
                del self.lost[host]
                self._say(f"Host {host} is heard again.", self.host)
            if is_silent and waiting and host not in self.lost and heard is not None:
                self.lost[host] = heard
                sentence = describe_lost_host(neighbour, waiting, now)
                self._tell(
                    News("host lost", sentence, None, "supported", host), since=heard, writes=self._speaks_first()
                )

    def _end_the_late(self, now: float) -> None:
        """Ends the worker of this host that is to blame, or all where nobody is or a host is lost."""
        stall = self.watch.stall
        victims: list[int] = []
        if self.lost and now - min(self.lost.values()) > self.stall_seconds:
            victims = list(self.alive)
        elif stall is not None and self.watch.is_over() and not self._knows_cause(now):
            victims = [rank for rank in self.alive if stall.rank in (None, rank)]
        reason = next((one.sentence for one in reversed(self.news) if one.what in ("stall", "host lost")), "")
        for rank in victims:
            if rank not in self.ended:
                self.ended.add(rank)
                self._end(self.alive[rank], reason or (stall.sentence if stall is not None else ""))

    def _end(self, worker: LocalWorker, reason: str) -> None:
        sentence = f"Worker {worker.rank} was ended. {reason}".strip()
        if worker.error_file is not None:
            with suppress(OSError):
                write_json(Path(worker.error_file), {"message": sentence, "timestamp": int(time.time())})
        self._tell(News("ended", sentence, worker.rank))
        if worker.process.is_alive():
            with suppress(OSError):
                os.kill(worker.process.pid, signal.SIGKILL)

    def _speaks_first(self) -> bool:
        """Whether this host has the first worker of those that can be heard: it speaks where no host is to blame."""
        others = [
            rank for one in self.exchange.others if one.peer["host"] not in self.lost for rank in one.peer["ranks"]
        ]
        return bool(self.seen) and min(self.seen) < min(others, default=sys.maxsize)

    def _tell(
        self,
        news: News,
        stall: Stall | None = None,
        since: float | None = None,
        writes: bool = True,
        says: bool = True,
    ) -> None:
        """Says a sentence here, in the journal and on the other hosts."""
        self.news.append(news)
        if says:
            self._say(news.sentence, self.host)
        self._note_cause(news)
        if writes:
            beat = None if news.rank is None else read_heartbeat(self.folder, news.rank)
            self.log.write(
                news.what,
                news.sentence,
                host=news.host or self.host,
                rank=news.rank,
                since=stall.since if stall is not None else since,
                evidence=news.evidence or None,
                **({} if beat is None else {"phase": beat.phase, "step": beat.step}),
            )

    def _repeat_news(self, neighbour: Neighbour) -> None:
        """Says what another host has found out."""
        for news in neighbour.message.news if neighbour.message is not None else ():
            host = neighbour.peer["host"]
            is_known = news.what == "host lost" and news.host in self.lost
            if (host, news.sentence) in self.repeated or is_known:
                continue
            self.repeated.add((host, news.sentence))
            self._say(news.sentence, host)
            self._note_cause(news)

    def _note_cause(self, news: News) -> None:
        if news.what != "stall":
            self.cause_at = time.monotonic()
            write_death(self.folder, time.time(), news.sentence)

    def _say(self, sentence: str, host: str) -> None:
        is_named = not self.exchange.others or (host == self.host and sentence.startswith("Host "))
        warn(sentence if is_named else f"Host {host}: {sentence}")

    def _send(self) -> None:
        view = self.watch.look(self._list_watched())
        self.exchange.send(Message(0, view, self.news, is_last=not self.alive))

    def _list_watched(self) -> list[WatchedWorker]:
        return [WatchedWorker(rank, worker.process.pid) for rank, worker in self.alive.items()]

    def close(self) -> None:
        """Removes the folder of this start; notes for the next one stay beside it."""
        self.exchange.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()  # only if it is empty


def main() -> None:
    facts = MonitorFacts(**json.loads(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the workers, and it ends after them
    with (Path(facts.folder) / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # another worker of this host has started one
        monitor = HostMonitor(facts)
        try:
            monitor.run()
        finally:
            monitor.close()


if __name__ == "__main__":
    main()
