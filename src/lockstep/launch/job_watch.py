"""Judges the workers of several hosts together, by what their monitors tell each other."""

from lockstep.heartbeat import Heartbeat
from lockstep.launch.describe_stall import Stall, describe_stall
from lockstep.launch.monitor_exchange import Neighbour
from lockstep.launch.process_state import ProcessState
from lockstep.launch.stall_watch import StallWatch, View
from lockstep.monitor_folder import Peer


class JobWatch(StallWatch):
    """Judges the workers of all hosts. Only this host's can be looked at closely."""

    is_complete = True  # all hosts are heard

    def describe(self, view: View, late: dict[int, Heartbeat], before: dict[int, ProcessState], now: float) -> Stall:
        pids = {rank: view.pids.get(rank, 0) for rank in view.beats}
        stall = describe_stall(view.beats, late, view.states, before, pids, now)
        if stall.rank is None or self.is_complete or stall.evidence == "established":
            return stall
        since = min(beat.time for beat in late.values())
        who = ", ".join(str(rank) for rank in sorted(late))
        waited = f"{'Worker' if len(late) == 1 else 'Workers'} {who} of this host waited for {now - since:.0f} s"
        sentence = (
            f"{waited}, and not all hosts can be heard: a lost connection, or a worker of another host (cause unknown)."
        )
        return Stall(None, since, "unknown", sentence)


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
