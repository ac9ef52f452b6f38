"""What communication adds to a step under each strategy, for arrays of worker counts.

docs/understand/planner.md derives every line."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lockstep.explain.reading.steps import Column
from lockstep.lab.plan.costs import Wiring, half_ring
from lockstep.lab.plan.job import BYTES, Choice, PlannedJob
from lockstep.lab.plan.overlap import PlannedPacket, buckets, last_arrival, parts

EXACT_PARTS = 16
"""Up to so many holders of parameters are followed packet by packet."""
OUTER_UPDATES = 2.0
"""What a meeting of local workers computes, in ordinary updates: movement, momentum and the new model. An estimate."""
POWERSGD_UPDATES, POWERSGD_PER_RANK = 9.0, 0.2
"""What powersgd computes, in ordinary updates: fitted to two measurements on CPU (docs/understand/planner.md)."""


@dataclass(frozen=True)
class Parts:
    """What one worker does in a step, before anybody waits."""

    forward: Column  # of all micro-batches, with the backward passes of all but the last
    backward: Column
    update: Column
    other: Column

    @property
    def computing(self) -> Column:
        return self.forward + self.backward + self.update + self.other


@dataclass(frozen=True)
class Exchanged:
    """What communication makes of a step."""

    exposed: Column
    overlapped: Column
    bytes_sent: Column
    computing: Column  # additional
    update: Column  # instead of a worker's own

    def after_sums(self, job: PlannedJob, wiring: Wiring, workers: Column) -> "Exchanged":
        """With the small sums for which layers wait in the middle of both passes (batch norm):
        nothing hides them."""
        sizes = job.profile.sums
        waits = sum((wiring.all_reduce(size, workers) for size in sizes), np.zeros_like(workers))
        sent = 2 * (workers - 1) / workers * sum(sizes)
        return replace(self, exposed=self.exposed + waits, bytes_sent=self.bytes_sent + sent)

    def among(self, many: np.ndarray, doing: Parts) -> "Exchanged":
        """Where there are many workers; one alone exchanges nothing."""

        def only(part: Column) -> Column:
            return np.where(many, part, 0.0)

        update = np.where(many, self.update, doing.update)
        sent, computing = only(self.bytes_sent), only(self.computing)
        return Exchanged(only(self.exposed), only(self.overlapped), sent, computing, update)


def _host(job: PlannedJob, wiring: Wiring, sent: Column, workers: Column) -> Column:
    """Seconds of all shared cores that sending takes."""
    per_byte = wiring.between.host_seconds_per_byte
    return sent * per_byte * (workers / job.cores if job.cores else 1.0)


def _crowded(job: PlannedJob, workers: Column) -> Column:
    """The share of cores that computing wants: what communication takes there, computing lacks."""
    return np.minimum(1.0, workers * job.threads / job.cores) if job.cores else np.ones_like(workers)


def _all_reduce(job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, doing: Parts) -> Exchanged:
    if choice.gradients == "powersgd":
        return _powersgd(job, choice, wiring, workers, doing)
    packets = buckets(job.profile.tensors, job.bucket_mb)
    size = BYTES[choice.gradients]
    sent = 2 * (workers - 1) / workers * size * sum(packet.values for packet in packets)
    host = _host(job, wiring, sent, workers)
    travel = [wiring.all_reduce(packet.values * size, workers) for packet in packets]
    total = np.sum(travel, axis=0)
    slower = np.maximum(1.0, host / total)  # where the cores cannot keep up with the link
    travel, total = [seconds * slower for seconds in travel], total * slower
    exposed = _exposed(packets, travel, doing.backward)
    extra = np.clip(1 - exposed / total, 0.0, 1.0) * host * _crowded(job, workers)
    exposed = _exposed(packets, travel, doing.backward + extra) + _agreement(wiring, workers)
    return Exchanged(exposed, np.maximum(0.0, total - exposed), sent, extra, doing.update)


def _exposed(packets: Sequence[PlannedPacket], travel: Sequence[Column], backward: Column) -> Column:
    ready = [packet.ready * backward for packet in packets]
    return np.maximum(0.0, last_arrival(ready, travel) - backward)


def _agreement(wiring: Wiring, workers: Column) -> Column:
    """At the end of a step all agree on going on: an all-reduce of two numbers."""
    return wiring.all_reduce(16, workers)


def _powersgd(job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, doing: Parts) -> Exchanged:
    """Two thin matrices for each matrix, one after the other, after backward; vectors as they are."""
    values = 0
    for tensor in job.profile.tensors:
        rows, columns = tensor.shape[0], tensor.values // max(1, tensor.shape[0])
        thin = choice.rank * (rows + columns)
        values += min(tensor.values, thin) if len(tensor.shape) > 1 else tensor.values
    sent = 2 * (workers - 1) / workers * 4 * values
    computing = doing.update * (POWERSGD_UPDATES + POWERSGD_PER_RANK * choice.rank)
    exposed = wiring.all_reduce(4 * values, workers) + 2 * _agreement(wiring, workers)
    return Exchanged(exposed, np.zeros_like(sent), sent, computing, doing.update)


def _sharded(job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, doing: Parts) -> Exchanged:
    """FSDP2: a layer's matrices are gathered while the layer before computes, forward and backward; gradients are
    scattered while backward goes on. The rest (embedding, vectors) is gathered first and scattered last."""
    layers = [tensor for tensor in job.profile.tensors if _layer(tensor.name) and len(tensor.shape) > 1]
    inside = sum(tensor.values for tensor in layers)
    rest = job.profile.parameters - inside
    last = sum(tensor.values for tensor in layers if _layer(tensor.name) == _layer(layers[-1].name)) if layers else 0
    there, back = 2 if job.profile.precision in ("bf16", "fp16") else 4, BYTES[choice.gradients]

    def travel(size: float) -> Column:
        return wiring.over(half_ring, size, workers)

    forward = travel(4 * rest) + np.maximum(0.0, travel(there * inside) - doing.forward)
    both = travel(there * (inside - last)) + travel(back * inside)
    backward = np.maximum(0.0, both - doing.backward) + travel(back * rest)
    total = travel(4 * rest) + travel(there * inside) + both + travel(back * rest)
    sent = (workers - 1) / workers * (4 * rest + there * (2 * inside - last) + back * (inside + rest))
    exposed = forward + backward + _agreement(wiring, workers)
    return Exchanged(exposed, np.maximum(0.0, total - exposed), sent, np.zeros_like(sent), doing.update / workers)


def _layer(name: str) -> str:
    """`model.encoder.3.` of `model.encoder.3.attention.weight`; empty outside of lists."""
    words = name.split(".")
    places = [place for place, word in enumerate(words) if word.isdigit()]
    return ".".join(words[: places[0] + 1]) if places else ""


def _server(job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, doing: Parts) -> Exchanged:
    size = 4 * job.profile.parameters
    holders = np.full_like(workers, choice.servers) if choice.servers else workers
    away = workers if choice.servers else workers - 1  # workers that a holder serves over the link
    rate = wiring.rate(workers + choice.servers)
    if job.cores and wiring.between.host_seconds_per_byte:  # the cores may not keep up with the link
        rate = np.minimum(rate, job.cores / (workers * wiring.between.host_seconds_per_byte))
    update = doing.update / holders
    share = 1.0 if choice.servers else away / workers  # of the model that a worker sends over its link
    each_way = np.maximum(share, away / holders) * size / rate
    sent = (1 if choice.servers else 2) * share * size * np.ones_like(workers)  # gradients, and parameters to others
    talk = 3 * wiring.latency(workers) + _agreement(wiring, workers)  # push, norm, update
    if choice.mode == "sync":
        late = np.maximum(0.0, _pushed(job, choice, workers, away, rate, doing.backward) - doing.backward)
        overlapped = np.maximum(0.0, each_way - late)
        hidden = np.clip(overlapped / (2 * each_way), 0.0, 1.0)
        extra = hidden * _host(job, wiring, sent, workers) * _crowded(job, workers)
        return Exchanged(late + each_way + talk, overlapped, sent, extra, update)
    one = np.ones_like(workers)  # they come at different times
    late = np.maximum(0.0, _pushed(job, choice, workers, one, rate, doing.backward) - doing.backward)
    computing = doing.computing - doing.update + update
    jam = np.maximum(each_way, workers * update)  # a link, or a lock, that all workers pass one after the other
    exposed = np.maximum(0.0, np.maximum(computing + late + share * size / rate, jam) - computing)
    return Exchanged(exposed + talk, np.maximum(0.0, 2 * each_way - exposed), sent, np.zeros_like(sent), update)


def _pushed(job: PlannedJob, choice: Choice, workers: Column, served: Column, rate: Column, backward: Column) -> Column:
    """When the last packet of gradients has arrived. A holder's link carries a packet for each of `served` workers; a
    worker's own link may need longer for all holders."""
    arrived = np.zeros_like(workers)
    for place, count in enumerate(workers.astype(int).tolist()):
        holders = choice.servers or count
        if holders > EXACT_PARTS:  # the part that is ready last then decides
            arrived[place] = backward[place] + served[place] / holders * 4 * job.profile.parameters / rate[place]
            continue
        found, per_value = parts(job.profile.tensors, holders, job.bucket_mb), 4 / rate[place]
        others = holders if choice.servers else holders - 1
        coming = [_chain(packets, backward[place], served[place] * per_value) for packets in found]
        going = _chain([packet for packets in found[:others] for packet in packets], backward[place], per_value)
        arrived[place] = max(*coming, going)
    return arrived


def _chain(packets: Sequence[PlannedPacket], backward: float, seconds_per_value: float) -> float:
    """When the last of some packets has arrived that travel one after the other."""
    end = 0.0
    for packet in sorted(packets, key=lambda packet: packet.ready):
        end = max(packet.ready * backward, end) + packet.values * seconds_per_value
    return end


def _local(job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, doing: Parts) -> Exchanged:
    """The whole model once in `every` steps, hidden by nothing."""
    size = BYTES[choice.gradients] * job.profile.parameters
    sent = 2 * (workers - 1) / workers * size
    meeting = np.maximum(wiring.all_reduce(size, workers), _host(job, wiring, sent, workers))
    computing = OUTER_UPDATES * doing.update / choice.every
    return Exchanged(meeting / choice.every, np.zeros_like(sent), sent / choice.every, computing, doing.update)


def _nothing(job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, doing: Parts) -> Exchanged:
    zero = np.zeros_like(workers)
    return Exchanged(zero, zero, zero, zero, doing.update)


EXCHANGES = {"allreduce": _all_reduce, "sharded": _sharded, "server": _server, "local": _local, "replicas": _nothing}
