"""What communication adds to a step under each strategy. All columns are over worker counts, [counts].

docs/understand/planner.md explains the formulas.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lockstep.explain.reading.steps import Column, Mask
from lockstep.lab.plan.costs import Wiring, half_ring_seconds
from lockstep.lab.plan.overlap import PlannedPacket, find_last_arrival, make_buckets, make_shards
from lockstep.lab.plan.planned_job import BYTES, Choice, PlannedJob

EXACT_SHARDS = 16
"""Packets are simulated one by one up to this number of shards; beyond it the shard that is ready last decides."""
OUTER_UPDATES = 2.0
"""Cost of a synchronization of `local` in ordinary updates: difference, momentum and the new model. An estimate."""
POWERSGD_UPDATES, POWERSGD_PER_RANK = 9.0, 0.2
"""Cost of powersgd in ordinary updates, fitted to two measurements on CPU (docs/understand/planner.md)."""


@dataclass(frozen=True)
class ComputeSeconds:
    """Seconds that one worker computes in a step."""

    forward: Column  # all micro-batches, with the backward passes of all but the last
    backward: Column  # the last micro-batch
    update: Column
    other: Column

    @property
    def total(self) -> Column:
        return self.forward + self.backward + self.update + self.other


@dataclass(frozen=True)
class ExchangeCost:
    """What communication adds to a step."""

    exposed: Column
    overlapped: Column
    bytes_sent: Column
    computing: Column  # additional
    update: Column  # replaces the update of ComputeSeconds

    def add_batch_norm(self, job: PlannedJob, wiring: Wiring, workers: Column) -> "ExchangeCost":
        """Adds the small all-reduces of batch norm in both passes, which nothing hides."""
        sizes = job.profile.sums
        seconds = sum((wiring.time_all_reduce(size, workers) for size in sizes), np.zeros_like(workers))
        sent = 2 * (workers - 1) / workers * sum(sizes)
        return replace(self, exposed=self.exposed + seconds, bytes_sent=self.bytes_sent + sent)

    def keep_where(self, several: Mask, compute: ComputeSeconds) -> "ExchangeCost":
        """Removes all costs where `several` is false: a single worker exchanges nothing."""

        def mask(column: Column) -> Column:
            return np.where(several, column, 0.0)

        update = np.where(several, self.update, compute.update)
        sent, computing = mask(self.bytes_sent), mask(self.computing)
        return ExchangeCost(mask(self.exposed), mask(self.overlapped), sent, computing, update)


def _sending_seconds(job: PlannedJob, wiring: Wiring, sent: Column, workers: Column) -> Column:
    """Returns the seconds for which sending occupies all shared cores."""
    per_byte = wiring.between.host_seconds_per_byte
    return sent * per_byte * (workers / job.cores if job.cores else 1.0)


def _core_usage(job: PlannedJob, workers: Column) -> Column:
    """Returns the share of the cores that computing uses: there, sending slows computing down."""
    return np.minimum(1.0, workers * job.threads / job.cores) if job.cores else np.ones_like(workers)


def _predict_allreduce(
    job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, compute: ComputeSeconds
) -> ExchangeCost:
    if choice.gradients == "powersgd":
        return _predict_powersgd(job, choice, wiring, workers, compute)
    packets = make_buckets(job.profile.tensors, job.bucket_mb)
    size = BYTES[choice.gradients]
    sent = 2 * (workers - 1) / workers * size * sum(packet.values for packet in packets)
    sending = _sending_seconds(job, wiring, sent, workers)
    travel = [wiring.time_all_reduce(packet.values * size, workers) for packet in packets]
    total = np.sum(travel, axis=0)
    slowdown = np.maximum(1.0, sending / total)  # where the cores are slower than the link
    travel, total = [seconds * slowdown for seconds in travel], total * slowdown
    exposed = _find_exposed(packets, travel, compute.backward)
    extra = np.clip(1 - exposed / total, 0.0, 1.0) * sending * _core_usage(job, workers)
    exposed = _find_exposed(packets, travel, compute.backward + extra) + _time_agreement(wiring, workers)
    return ExchangeCost(exposed, np.maximum(0.0, total - exposed), sent, extra, compute.update)


def _find_exposed(packets: Sequence[PlannedPacket], travel: Sequence[Column], backward: Column) -> Column:
    ready = [packet.ready * backward for packet in packets]
    return np.maximum(0.0, find_last_arrival(ready, travel) - backward)


def _time_agreement(wiring: Wiring, workers: Column) -> Column:
    """At the end of a step an all-reduce of two numbers decides whether training continues."""
    return wiring.time_all_reduce(16, workers)


def _predict_powersgd(
    job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, compute: ComputeSeconds
) -> ExchangeCost:
    """Each matrix is sent as two low-rank factors after the backward pass, vectors uncompressed."""
    values = 0
    for tensor in job.profile.tensors:
        rows, columns = tensor.shape[0], tensor.values // max(1, tensor.shape[0])
        factors = choice.rank * (rows + columns)
        values += min(tensor.values, factors) if len(tensor.shape) > 1 else tensor.values
    sent = 2 * (workers - 1) / workers * 4 * values
    computing = compute.update * (POWERSGD_UPDATES + POWERSGD_PER_RANK * choice.rank)
    exposed = wiring.time_all_reduce(4 * values, workers) + 2 * _time_agreement(wiring, workers)
    return ExchangeCost(exposed, np.zeros_like(sent), sent, computing, compute.update)


def _predict_sharded(
    job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, compute: ComputeSeconds
) -> ExchangeCost:
    """FSDP2: the matrices of a layer are gathered while the previous layer computes, in both passes. Gradients are
    scattered during the backward pass. The other parameters (embedding, vectors) are gathered first and scattered
    last."""
    layers = [tensor for tensor in job.profile.tensors if _find_layer(tensor.name) and len(tensor.shape) > 1]
    inside = sum(tensor.values for tensor in layers)
    rest = job.profile.parameters - inside
    last_layer = _find_layer(layers[-1].name) if layers else ""
    last = sum(tensor.values for tensor in layers if _find_layer(tensor.name) == last_layer)
    gather, scatter = 2 if job.profile.precision in ("bf16", "fp16") else 4, BYTES[choice.gradients]

    def travel(size: float) -> Column:
        return wiring.time_exchange(half_ring_seconds, size, workers)

    forward = travel(4 * rest) + np.maximum(0.0, travel(gather * inside) - compute.forward)
    both = travel(gather * (inside - last)) + travel(scatter * inside)
    backward = np.maximum(0.0, both - compute.backward) + travel(scatter * rest)
    total = travel(4 * rest) + travel(gather * inside) + both + travel(scatter * rest)
    sent = (workers - 1) / workers * (4 * rest + gather * (2 * inside - last) + scatter * (inside + rest))
    exposed = forward + backward + _time_agreement(wiring, workers)
    update = compute.update / workers
    return ExchangeCost(exposed, np.maximum(0.0, total - exposed), sent, np.zeros_like(sent), update)


def _find_layer(name: str) -> str:
    """Returns `model.encoder.3` for `model.encoder.3.attention.weight`, and an empty string outside of module lists."""
    words = name.split(".")
    numbers = [index for index, word in enumerate(words) if word.isdigit()]
    return ".".join(words[: numbers[0] + 1]) if numbers else ""


def _predict_server(
    job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, compute: ComputeSeconds
) -> ExchangeCost:
    size = 4 * job.profile.parameters
    shards = np.full_like(workers, choice.servers) if choice.servers else workers
    remote = workers if choice.servers else workers - 1  # workers that a shard serves over the link
    rate = wiring.send_rate(workers + choice.servers)
    if job.cores and wiring.between.host_seconds_per_byte:  # the cores may be slower than the link
        rate = np.minimum(rate, job.cores / (workers * wiring.between.host_seconds_per_byte))
    update = compute.update / shards
    share = 1.0 if choice.servers else remote / workers  # of the model, sent by a worker over its link
    each_way = np.maximum(share, remote / shards) * size / rate
    sent = (1 if choice.servers else 2) * share * size * np.ones_like(workers)  # gradients, and parameters to others
    messages = 3 * wiring.latency(workers) + _time_agreement(wiring, workers)  # push, norm, update
    if choice.mode == "sync":
        pushed = _find_push_end(job, choice, workers, remote, rate, compute.backward)
        late = np.maximum(0.0, pushed - compute.backward)
        overlapped = np.maximum(0.0, each_way - late)
        hidden = np.clip(overlapped / (2 * each_way), 0.0, 1.0)
        extra = hidden * _sending_seconds(job, wiring, sent, workers) * _core_usage(job, workers)
        return ExchangeCost(late + each_way + messages, overlapped, sent, extra, update)
    one = np.ones_like(workers)  # pushes arrive at different times
    late = np.maximum(0.0, _find_push_end(job, choice, workers, one, rate, compute.backward) - compute.backward)
    computing = compute.total - compute.update + update
    queue = np.maximum(each_way, workers * update)  # of the link or of the lock that all workers pass in turn
    exposed = np.maximum(0.0, np.maximum(computing + late + share * size / rate, queue) - computing)
    overlapped = np.maximum(0.0, 2 * each_way - exposed)
    return ExchangeCost(exposed + messages, overlapped, sent, np.zeros_like(sent), update)


def _find_push_end(
    job: PlannedJob, choice: Choice, workers: Column, served: Column, rate: Column, backward: Column
) -> Column:
    """Returns when the last packet of gradients arrives. The link of a shard carries each packet for `served` workers. The
    link of a worker carries the packets of all shards, which may take longer."""
    arrived = np.zeros_like(workers)
    for index, count in enumerate(workers.astype(int).tolist()):
        shard_count = choice.servers or count
        if shard_count > EXACT_SHARDS:
            seconds = served[index] / shard_count * 4 * job.profile.parameters / rate[index]
            arrived[index] = backward[index] + seconds
            continue
        shards, per_value = make_shards(job.profile.tensors, shard_count, job.bucket_mb), 4 / rate[index]
        others = shard_count if choice.servers else shard_count - 1
        incoming = [_find_chain_end(packets, backward[index], served[index] * per_value) for packets in shards]
        packets_to_others = [packet for packets in shards[:others] for packet in packets]
        outgoing = _find_chain_end(packets_to_others, backward[index], per_value)
        arrived[index] = max(*incoming, outgoing)
    return arrived


def _find_chain_end(packets: Sequence[PlannedPacket], backward: float, seconds_per_value: float) -> float:
    """Returns when the last packet arrives if packets travel one after the other."""
    end = 0.0
    for packet in sorted(packets, key=lambda packet: packet.ready):
        end = max(packet.ready * backward, end) + packet.values * seconds_per_value
    return end


def _predict_local(
    job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, compute: ComputeSeconds
) -> ExchangeCost:
    """An all-reduce of the model every `every` steps, which nothing hides."""
    size = BYTES[choice.gradients] * job.profile.parameters
    sent = 2 * (workers - 1) / workers * size
    seconds = np.maximum(wiring.time_all_reduce(size, workers), _sending_seconds(job, wiring, sent, workers))
    computing = OUTER_UPDATES * compute.update / choice.every
    exposed = seconds / choice.every
    return ExchangeCost(exposed, np.zeros_like(sent), sent / choice.every, computing, compute.update)


def _predict_replicas(
    job: PlannedJob, choice: Choice, wiring: Wiring, workers: Column, compute: ComputeSeconds
) -> ExchangeCost:
    zero = np.zeros_like(workers)
    return ExchangeCost(zero, zero, zero, zero, compute.update)


EXCHANGES = {
    "allreduce": _predict_allreduce,
    "sharded": _predict_sharded,
    "server": _predict_server,
    "local": _predict_local,
    "replicas": _predict_replicas,
}
