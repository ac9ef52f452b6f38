"""Judges the workers of several hosts together, by what their monitors tell each other."""

from dataclasses import replace
from pathlib import Path

from lockstep.heartbeat import Heartbeat
from lockstep.launch.describe_stall import Stall, describe_stall
from lockstep.launch.monitor_exchange import Neighbour
from lockstep.launch.network_traffic import NetworkTraffic
from lockstep.launch.process_state import ProcessState
from lockstep.launch.stall_watch import StallWatch, View
from lockstep.monitor_folder import Peer


class JobWatch(StallWatch):
    """Judges the workers of all hosts. Only this host's can be looked at closely."""

    is_complete = True  # all hosts are heard
    hosts: tuple[str, ...] = ()

    def __init__(self, folder: Path, stall_seconds: float, start_seconds: float) -> None:
        super().__init__(folder, stall_seconds, start_seconds)
        self.traffic = NetworkTraffic()

    def judge(self, view: View, now: float) -> Stall | None:
        self.traffic.look(now)
        return super().judge(view, now)

    def describe(self, view: View, late: dict[int, Heartbeat], before: dict[int, ProcessState], now: float) -> Stall:
        pids = {rank: view.pids.get(rank, 0) for rank in view.beats}
        stall = describe_stall(view.beats, late, view.states, before, pids, now)
        if stall.rank is None and self.is_complete and self.traffic.is_slow and _all_exchange(view):
            return self._describe_slow_network(stall)
        if stall.rank is None or self.is_complete or stall.evidence == "established":
            return stall
        since = min(beat.time for beat in late.values())
        who = ", ".join(str(rank) for rank in sorted(late))
        waited = f"{'Worker' if len(late) == 1 else 'Workers'} {who} of this host waited for {now - since:.0f} s"
        sentence = (
            f"{waited}, and not all hosts can be heard: a lost connection, or a worker of another host (cause unknown)."
        )
        return Stall(None, since, "unknown", sentence)

    def _describe_slow_network(self, stall: Stall) -> Stall:
        """All wait in an exchange, and it makes progress. Nobody must be ended for it."""
        now, earlier = (f"{8e-6 * rate:,.3g} Mbit/s" for rate in (self.traffic.rate, self.traffic.highest))
        who = _list_hosts(self.hosts)
        sentence = (
            f"The connection between {who} is slow: the exchange of step {stall.step:,} is still under way, "
            f"this host's network carries {now} now and carried up to {earlier} before (supported)."
        )
        return replace(stall, evidence="supported", sentence=sentence, is_moving=True)


def _all_exchange(view: View) -> bool:
    return all(beat.phase == "merge" for beat in view.beats.values())


def _list_hosts(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) <= 4 else f"the {len(names)} hosts"


def add_neighbours(view: View, neighbours: list[Neighbour], now: float, lost_seconds: float) -> None:
    """Adds to a view of this host what the hosts that can be heard have said of theirs."""
    for neighbour in neighbours:
        message = neighbour.message
        if message is not None and not message.is_last and not neighbour.is_silent(now, lost_seconds):
            view.beats.update(message.view.beats)
            view.states.update(message.view.states)


def describe_lost_host(neighbour: Neighbour, waiting: dict[int, Heartbeat], now: float) -> str:
    peer, heard = neighbour.peer, neighbour.heard_at or now
    rank, beat = max(waiting.items(), key=lambda item: item[1].time)
    silence, wait = f"{now - heard:.0f} s", f"{now - beat.time:.0f} s in step {beat.step:,}"
    return (
        f"{name_host(peer)} is lost: its monitor was not heard for {silence}, and Worker {rank} has waited for {wait}."
    )


def name_host(peer: Peer) -> str:
    ranks = sorted(peer["ranks"])
    workers = f"Worker {ranks[0]}" if len(ranks) == 1 else f"Workers {', '.join(map(str, ranks))}"
    return f"Host {peer['host']} ({peer['address']}, {workers})"
