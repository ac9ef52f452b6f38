"""Question 5: what the workers exchanged, how fast, and what waiting for it costs."""

from dataclasses import dataclass

import numpy as np

from lockstep.explain.answer import Answer, Figure, Tone, missing, told
from lockstep.explain.bottleneck import COMPUTE, IMBALANCE, INPUT, NETWORK, WORTH, Bottleneck, count_hosts
from lockstep.explain.formatting import bits, count, megabytes, milliseconds, number, plural, share
from lockstep.explain.pages import charts
from lockstep.explain.reading.machines import Machines, links
from lockstep.explain.reading.measured_steps import MeasuredSteps
from lockstep.explain.reading.record import Record
from lockstep.explain.reading.steps import Column

QUESTION = "Was the network the bottleneck?"


@dataclass(frozen=True)
class ExchangeTraffic:
    """What the workers sent to each other."""

    bytes_per_step: float  # of one worker, mean
    bytes_of_sums: float  # of them for synchronizing batch norm
    travel: float  # mean seconds per step in which gradients were in flight, for the worker that waited least
    exposed: float  # mean share of a step that workers waited in merge
    hosts: int  # 0 where it is not known
    link_bits: float | None
    probe_bits: float | None
    latency: float | None
    wire_bits: float | None  # measured at the interface, mean over the run

    @property
    def bits(self) -> float | None:
        """Rate at which a worker sent while gradients were in flight."""
        sent = self.bytes_per_step - self.bytes_of_sums
        return 8 * sent / self.travel if self.travel > 0 and sent else None

    @property
    def local(self) -> bool:
        return self.hosts == 1


def measure(record: Record, seen: Machines) -> ExchangeTraffic | None:
    """None when no step was measured."""
    measured = record.measured
    if not measured.count:
        return None
    everybody = [steps for steps in measured.workers.values() if len(steps)]
    probes = links(record)
    busiest = [one for host in seen.hosts.values() if (one := host.busiest(seen.local)) is not None]

    def first(name: str) -> float | None:
        return next((float(line[name]) for line in probes if isinstance(line.get(name), int | float)), None)

    by_interface = next((one.link_bits for one in busiest if one.name != "lo" and one.link_bits), None)
    return ExchangeTraffic(
        bytes_per_step=float(np.mean([np.nan_to_num(steps.bytes_sent).mean() for steps in everybody])),
        bytes_of_sums=float(np.mean([steps.sums_bytes.mean() for steps in everybody])),
        travel=float(travel(measured).mean()),
        exposed=float(np.mean([steps.merge.sum() / steps.seconds.sum() for steps in everybody])),
        hosts=count_hosts(record),
        link_bits=first("link_bits") or by_interface,
        probe_bits=first("probe_bits"),
        latency=first("latency_seconds"),
        wire_bits=max((one.sent_bits for one in busiest), default=None),
    )


def travel(measured: MeasuredSteps) -> Column:
    """Seconds per step in which gradients were in flight, as measured by the worker that waited least. The other workers
    cannot tell this from waiting for a slower worker."""
    if not measured.lockstep:
        return np.nan_to_num(measured.primary.under_way)
    return np.nan_to_num(measured.stack("under_way")).min(0)


def nothing_sent(measured: MeasuredSteps) -> str:
    return "one worker trained alone" if len(measured.workers) == 1 else "the workers exchanged nothing"


def answer(record: Record, found: Bottleneck | None, traffic: ExchangeTraffic | None) -> Answer:
    if found is None or traffic is None:
        return Answer(5, QUESTION, "not measured", "No step outside the warm-up was measured.", "unknown")
    if not traffic.bytes_per_step:
        text = f"No: {nothing_sent(record.measured)}, so no network was used."
        figures = [told("sent per step and worker", 0.0, megabytes, record.measured.how("mean"))]
        return Answer(5, QUESTION, "no network used", text, "good", figures, [_parts_chart(found)])
    text = (
        f"{_verdict(found)} {_waiting(found, traffic)} Each worker sends {megabytes(traffic.bytes_per_step)} per step"
    )
    text += f", at {bits(traffic.bits)} while gradients are in flight." if traffic.bits is not None else "."
    if found.sums:
        sums, gradients = share(found.cost("sums")), share(found.cost(NETWORK) - found.cost("sums"))
        text += (
            f" Of this, synchronizing batch norm takes {sums} of a step, in which all workers wait for each other, and "
            f"gradients take {gradients}."
        )
    if traffic.local:
        text += " All workers ran on one machine, so no link was used."
    elif traffic.hosts and traffic.probe_bits and traffic.bits:
        text += (
            f" That is {share(traffic.bits / traffic.probe_bits)} of the rate that a probe between the hosts reached."
        )
    drawn = [_parts_chart(found)]
    if traffic.hosts > 1 and traffic.bits is not None:
        drawn.append(_rates_chart(traffic))
    short, tone = _short(found)
    return Answer(5, QUESTION, short, text, tone, _figures(record, found, traffic), drawn)


def _is_bottleneck(found: Bottleneck) -> bool:
    return found.verdict.cause == NETWORK


def _is_uncertain(found: Bottleneck) -> bool:
    return found.cost(NETWORK) >= WORTH and not found.verdict.is_certain(NETWORK)


def _short(found: Bottleneck) -> tuple[str, Tone]:
    cost = f"{share(found.cost(NETWORK))} of a step"
    if _is_uncertain(found):
        return f"not certain, {cost}", "unknown"
    if not _is_bottleneck(found):
        return f"no, {cost}", "good" if found.cost(NETWORK) < WORTH else "plain"
    if found.mixes_waiting:
        return f"possibly, {cost}", "mind"
    return f"yes, {cost}" if found.hosts > 1 else f"{found.exchange} was, {cost}", "mind"


def _verdict(found: Bottleneck) -> str:
    """The answer in one or two sentences, consistent with the verdict on the step."""
    verdict, cost, computing = found.verdict, share(found.cost(NETWORK)), share(found.cost(COMPUTE))
    where = {0: "", 1: " between processes of one machine"}.get(found.hosts, f" between {found.hosts} machines")
    what = verdict.activity(NETWORK)
    what = what if found.mixes_waiting else what + where
    costs = f"{cost} of a step goes to {what}."
    if _is_uncertain(found):
        return f"Not certain: {costs} This varies too much between steps (± {share(verdict.noise[NETWORK])})."
    if _is_bottleneck(found) and found.mixes_waiting:
        return f"Possibly: {costs} The workers do not step together, so their journals cannot tell the two apart."
    if _is_bottleneck(found):
        return f"Yes: {costs}" if found.hosts > 1 else f"{found.exchange.capitalize()} was: {costs}"
    if verdict.avoidable == NETWORK and found.cost(NETWORK) >= WORTH:
        return f"No: {costs} It is the largest avoidable cost; computing takes {computing}."
    if found.cost(NETWORK) >= WORTH:
        return f"No: {costs} {verdict.activity(verdict.avoidable).capitalize()} costs more ({share(verdict.cost)})."
    return f"No: {costs}"


def _waiting(found: Bottleneck, traffic: ExchangeTraffic) -> str:
    text = f"Workers waited {share(traffic.exposed)} of their time"
    return f"{text}." if found.mixes_waiting else f"{text}; the difference is waiting for slower workers."


def _figures(record: Record, found: Bottleneck, traffic: ExchangeTraffic) -> list[Figure]:
    how = record.measured.how("mean", f"journals of {plural(len(record.measured.workers), 'worker')}")
    ring = " (a ring sends 2 (n - 1) / n of the gradients)" if record.launch.get("strategy") == "allreduce" else ""
    slower = max(0.0, traffic.exposed - found.cost(NETWORK))
    figures = [
        told("sent per step and worker", traffic.bytes_per_step, megabytes, f"counted by the strategy{ring}; {how}"),
        told("exposed waiting", traffic.exposed, share, f"merge over the step's seconds; {how}"),
        told("of it the exchange itself", found.cost(NETWORK), share, found.how),
        told("of it waiting for slower workers", slower, share, "the difference of the two"),
    ]
    if found.sums:
        how_sums = f"share of the step, part of the exchange, within the forward and backward passes; {found.how}"
        figures.append(told("sums of batch norm", found.cost("sums"), share, how_sums))
    if traffic.bits is not None:
        how = "bytes of gradients over exposed and overlapped merge of the worker that waited least"
        figures.append(told("rate while travelling", traffic.bits, bits, how))
    if traffic.local:
        figures.append(Figure("link speed", "not meaningful", "all workers ran on one machine"))
    elif not traffic.hosts:
        figures.append(missing("link speed", "the run does not record on which machines all its processes ran"))
    else:
        figures += _link(traffic)
    if traffic.wire_bits is not None:
        how = "bytes sent by the busiest interface over the run, by all programs, system samples"
        figures.append(told("on the interface", traffic.wire_bits, bits, how))
    late = np.concatenate([steps.staleness for steps in record.measured.workers.values()])
    late = late[np.isfinite(late)]
    if len(late):
        how = f"updates by others between reading and writing, mean of {count(len(late))} steps of all workers"
        figures.append(told("staleness", float(late.mean()), number, f"{how}; the maximum was {count(late.max())}"))
    return figures


def _link(traffic: ExchangeTraffic) -> list[Figure]:
    figures = []
    for name, value, how in (
        ("link speed", traffic.link_bits, "reported by the interface"),
        ("probe between the hosts", traffic.probe_bits, "measured in the run"),
    ):
        if value is None:
            figures.append(missing(name, "not in the journal"))
            continue
        figures.append(told(name, value, bits, how))
        if traffic.bits is not None:
            figures.append(told(f"rate against the {name}", traffic.bits / value, share, "ratio of the two"))
    if traffic.latency is not None:
        figures.append(told("latency", traffic.latency, milliseconds, "probe between the hosts"))
    return figures


def _parts_chart(found: Bottleneck) -> charts.Chart:
    colours = {COMPUTE: "--blue", IMBALANCE: "--orange", INPUT: "--purple", NETWORK: "--vermilion"}
    label = found.verdict.label
    parts = {label(name): ([getattr(found, name) * 1e3], colour) for name, colour in colours.items()}
    costs = ", ".join(f"{label(name)} {share(found.cost(name))}" for name in colours)
    title = "What a step of the slowest worker is made of" if found.lockstep else "What a step is made of"
    says = f"{costs} of a step of {milliseconds(found.step)}"
    return charts.stacked("step-parts", title, says, ["step"], parts, "milliseconds")


def _rates_chart(traffic: ExchangeTraffic) -> charts.Chart:
    rates = {"while travelling": traffic.bits, "probe": traffic.probe_bits, "link": traffic.link_bits}
    known = {name: rate for name, rate in rates.items() if rate}
    colours = {"while travelling": "--blue", "probe": "--green", "link": "--grey"}
    texts = [bits(rate) for rate in known.values()]
    says = ", ".join(f"{name} {text}" for name, text in zip(known, texts, strict=True))
    title, values = "Rate of the exchange and of the network", [rate / 1e6 for rate in known.values()]
    drawn = [colours[name] for name in known]
    return charts.bars("network-rates", title, says, list(known), values, texts, "Mbit/s", drawn)
