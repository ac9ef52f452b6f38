"""Whether the network was the bottleneck: what the workers exchanged, how fast, and what waiting for it costs."""

import numpy as np

from lockstep.explain.answer import Answer, Chart, Figure, Tone, make_figure, make_missing_figure
from lockstep.explain.evidence import Evidence
from lockstep.explain.formatting import bits, count, megabytes, milliseconds, number, plural, share
from lockstep.explain.measures.bottleneck import COMPUTE, IMBALANCE, INPUT, NETWORK, WORTH, Bottleneck
from lockstep.explain.measures.exchange_traffic import ExchangeTraffic, explain_no_traffic
from lockstep.explain.pages import charts
from lockstep.explain.reading.record import Record

QUESTION = "Was the network the bottleneck?"


def answer(evidence: Evidence) -> Answer:
    record, bottleneck, traffic = evidence.record, evidence.bottleneck, evidence.traffic
    if bottleneck is None or traffic is None:
        return Answer(QUESTION, "not measured", "No step outside the warm-up was measured.", "unknown")
    if not traffic.bytes_per_step:
        text = f"No: {explain_no_traffic(record.measured)}, so no network was used."
        figures = [make_figure("sent per step and worker", 0.0, megabytes, record.measured.describe("mean"))]
        return Answer(QUESTION, "no network used", text, "good", figures, [_draw_parts(bottleneck)])
    drawn = [_draw_parts(bottleneck)]
    if traffic.hosts > 1 and traffic.bits is not None:
        drawn.append(_draw_rates(traffic))
    short, tone = _summarise(bottleneck)
    text, figures = _write_text(bottleneck, traffic), _list_figures(record, bottleneck, traffic)
    return Answer(QUESTION, short, text, tone, figures, drawn)


def _write_text(bottleneck: Bottleneck, traffic: ExchangeTraffic) -> str:
    text = f"{_write_verdict(bottleneck)} {_describe_waiting(bottleneck, traffic)}"
    text += f" Each worker sends {megabytes(traffic.bytes_per_step)} per step"
    text += f", at {bits(traffic.bits)} while gradients are in flight." if traffic.bits is not None else "."
    if bottleneck.sums:
        sums = share(bottleneck.cost("sums"))
        gradients = share(bottleneck.cost(NETWORK) - bottleneck.cost("sums"))
        text += (
            f" Of this, synchronizing batch norm takes {sums} of a step, in which all workers wait for each other, and "
            f"gradients take {gradients}."
        )
    if traffic.is_local:
        text += " All workers ran on one machine, so no link was used."
    elif traffic.hosts and traffic.probe_bits and traffic.bits:
        text += (
            f" That is {share(traffic.bits / traffic.probe_bits)} of the rate that a probe between the hosts reached."
        )
    return text


def _is_bottleneck(bottleneck: Bottleneck) -> bool:
    return bottleneck.verdict.cause == NETWORK


def _is_uncertain(bottleneck: Bottleneck) -> bool:
    return bottleneck.cost(NETWORK) >= WORTH and not bottleneck.verdict.is_certain(NETWORK)


def _summarise(bottleneck: Bottleneck) -> tuple[str, Tone]:
    cost = f"{share(bottleneck.cost(NETWORK))} of a step"
    if _is_uncertain(bottleneck):
        return f"not certain, {cost}", "unknown"
    if not _is_bottleneck(bottleneck):
        return f"no, {cost}", "good" if bottleneck.cost(NETWORK) < WORTH else "plain"
    if bottleneck.mixes_waiting:
        return f"possibly, {cost}", "mind"
    return f"yes, {cost}" if bottleneck.hosts > 1 else f"{bottleneck.exchange} was, {cost}", "mind"


def _write_verdict(bottleneck: Bottleneck) -> str:
    """Writes the answer in one or two sentences, consistent with the verdict on the step."""
    verdict, cost, computing = bottleneck.verdict, share(bottleneck.cost(NETWORK)), share(bottleneck.cost(COMPUTE))
    where = {0: "", 1: " between processes of one machine"}.get(
        bottleneck.hosts, f" between {bottleneck.hosts} machines"
    )
    what = verdict.activity(NETWORK)
    what = what if bottleneck.mixes_waiting else what + where
    costs = f"{cost} of a step goes to {what}."
    if _is_uncertain(bottleneck):
        return f"Not certain: {costs} This varies too much between steps (± {share(verdict.noise[NETWORK])})."
    if _is_bottleneck(bottleneck) and bottleneck.mixes_waiting:
        return f"Possibly: {costs} The workers do not step together, so their journals cannot tell the two apart."
    if _is_bottleneck(bottleneck):
        return f"Yes: {costs}" if bottleneck.hosts > 1 else f"{bottleneck.exchange.capitalize()} was: {costs}"
    if verdict.avoidable == NETWORK and bottleneck.cost(NETWORK) >= WORTH:
        return f"No: {costs} It is the largest avoidable cost; computing takes {computing}."
    if bottleneck.cost(NETWORK) >= WORTH:
        return f"No: {costs} {verdict.activity(verdict.avoidable).capitalize()} costs more ({share(verdict.cost)})."
    return f"No: {costs}"


def _describe_waiting(bottleneck: Bottleneck, traffic: ExchangeTraffic) -> str:
    text = f"Workers waited {share(traffic.exposed)} of their time"
    has_difference = share(traffic.exposed) != share(bottleneck.cost(NETWORK))
    if bottleneck.mixes_waiting or not has_difference:
        return f"{text}."
    return f"{text}; the difference is waiting for slower workers."


def _list_figures(record: Record, bottleneck: Bottleneck, traffic: ExchangeTraffic) -> list[Figure]:
    how = record.measured.describe("mean", f"journals of {plural(len(record.measured.workers), 'worker')}")
    ring = " (a ring sends 2 (n - 1) / n of the gradients)" if record.run_line.get("strategy") == "allreduce" else ""
    slower = max(0.0, traffic.exposed - bottleneck.cost(NETWORK))
    figures = [
        make_figure(
            "sent per step and worker", traffic.bytes_per_step, megabytes, f"counted by the strategy{ring}; {how}"
        ),
        make_figure("exposed waiting", traffic.exposed, share, f"merge over the step's seconds; {how}"),
        make_figure("of it the exchange itself", bottleneck.cost(NETWORK), share, bottleneck.measured),
        make_figure("of it waiting for slower workers", slower, share, "the difference of the two"),
    ]
    if bottleneck.sums:
        how_sums = (
            f"share of the step, part of the exchange, within the forward and backward passes; {bottleneck.measured}"
        )
        figures.append(make_figure("sums of batch norm", bottleneck.cost("sums"), share, how_sums))
    if traffic.bits is not None:
        how = "bytes of gradients over exposed and overlapped merge of the worker that waited least"
        figures.append(make_figure("rate while travelling", traffic.bits, bits, how))
    if traffic.is_local:
        figures.append(Figure("link speed", "not meaningful", "all workers ran on one machine"))
    elif not traffic.hosts:
        figures.append(
            make_missing_figure("link speed", "the run does not record on which machines all its processes ran")
        )
    else:
        figures += _list_link_figures(traffic)
    if traffic.wire_bits is not None:
        how = "bytes sent by the busiest interface over the run, by all programs, system samples"
        figures.append(make_figure("on the interface", traffic.wire_bits, bits, how))
    staleness = np.concatenate([steps.staleness for steps in record.measured.workers.values()])
    staleness = staleness[np.isfinite(staleness)]
    if len(staleness):
        how = f"updates by others between reading and writing, mean of {count(len(staleness))} steps of all workers"
        how += f"; the maximum was {count(staleness.max())}"
        figures.append(make_figure("staleness", float(staleness.mean()), number, how))
    return figures


def _list_link_figures(traffic: ExchangeTraffic) -> list[Figure]:
    figures = []
    for name, value, how in (
        ("link speed", traffic.link_bits, "reported by the interface"),
        ("probe between the hosts", traffic.probe_bits, "measured in the run"),
    ):
        if value is None:
            figures.append(make_missing_figure(name, "not in the journal"))
            continue
        figures.append(make_figure(name, value, bits, how))
        if traffic.bits is not None:
            figures.append(make_figure(f"rate against the {name}", traffic.bits / value, share, "ratio of the two"))
    if traffic.latency is not None:
        figures.append(make_figure("latency", traffic.latency, milliseconds, "probe between the hosts"))
    return figures


def _draw_parts(bottleneck: Bottleneck) -> Chart:
    colours = {COMPUTE: "--blue", IMBALANCE: "--orange", INPUT: "--purple", NETWORK: "--vermilion"}
    label = bottleneck.verdict.label
    parts = {label(name): ([getattr(bottleneck, name) * 1e3], colour) for name, colour in colours.items()}
    costs = ", ".join(f"{label(name)} {share(bottleneck.cost(name))}" for name in colours)
    title = "What a step of the slowest worker is made of" if bottleneck.lockstep else "What a step is made of"
    description = f"{costs} of a step of {milliseconds(bottleneck.step)}"
    return charts.draw_stacked_bars("step-parts", title, description, ["step"], parts, "milliseconds")


def _draw_rates(traffic: ExchangeTraffic) -> Chart:
    rates = {"while travelling": traffic.bits, "probe": traffic.probe_bits, "link": traffic.link_bits}
    known = {name: rate for name, rate in rates.items() if rate}
    colours = {"while travelling": "--blue", "probe": "--green", "link": "--grey"}
    texts = [bits(rate) for rate in known.values()]
    description = ", ".join(f"{name} {text}" for name, text in zip(known, texts, strict=True))
    title, values = "Rate of the exchange and of the network", [rate / 1e6 for rate in known.values()]
    drawn = [colours[name] for name in known]
    return charts.draw_bars("network-rates", title, description, list(known), values, texts, "Mbit/s", drawn)
