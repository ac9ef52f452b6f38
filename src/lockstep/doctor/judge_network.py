"""Which interface every machine would use, and whether and how well the machines reach each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.doctor.compare_machines import Examined
from lockstep.doctor.finding import Finding, Level, list_names, passed
from lockstep.errors import LockstepError
from lockstep.hosts.machine_report import is_loopback

SLOW_BITS, USELESS_BITS = 100e6, 20e6
"""Bits a second. Below the first an exchange of gradients usually takes longer than the computing."""
FAR_SECONDS = 0.005
"""A round trip in one data centre takes less."""


@dataclass(frozen=True)
class UsedInterface:
    """What a machine would use to talk to the others."""

    name: str
    address: str


@dataclass(frozen=True)
class Connection:
    """A connection that was tried, from one machine to another."""

    source: str
    target: str
    place: str  # address and port
    purpose: str  # of the port
    seconds: float = 0.0  # of a round trip
    bits_per_second: float = 0.0
    error: str | None = None


def choose_interface(machine: Examined, wanted: str | None, several: bool) -> UsedInterface | Finding:
    """Returns the interface that a machine would use, or what is wrong with it. `wanted` comes from the user."""
    name, facts = machine.name, machine.facts
    named = wanted or facts.named_interface
    route, route_address = facts.route, facts.route_address
    proposal = f"Use {route} ({route_address})." if route and route_address and not is_loopback(route_address) else ""
    if named:
        origin = "" if wanted else " (GLOO_SOCKET_IFNAME)"
        addresses = facts.interfaces.get(named)
        if addresses is None:
            known = list_names(f"{one} ({', '.join(own)})" for one, own in facts.interfaces.items() if own)
            sentence = f"{name} has no interface {named}{origin}; it has {known}."
            return Finding(Level.FAIL, "interface", name, sentence, proposal)
        if not addresses:
            return Finding(Level.FAIL, "interface", name, f"{named}{origin} on {name} has no address.", proposal)
        if several and all(map(is_loopback, addresses)):
            sentence = f"{named}{origin} on {name} reaches only {name} itself."
            return Finding(Level.FAIL, "interface", name, sentence, proposal)
        same = [address for address in addresses if route_address and (":" in address) == (":" in route_address)]
        return UsedInterface(named, (same or addresses)[0])
    if route_address is None:
        sentence = f"{name} does not know the name of the first machine, or has no route to it."
        return Finding(
            Level.FAIL, "interface", name, sentence, "Give addresses in the hosts file: node1 address=10.0.0.1"
        )
    if several and is_loopback(route_address):
        sentence = f"On {name} the name of the first machine leads to {route_address}, which is {name} itself."
        remedy = "Correct /etc/hosts there, or give its address in the hosts file: node1 address=10.0.0.1"
        return Finding(Level.FAIL, "interface", name, sentence, remedy)
    return UsedInterface(route or "?", route_address)


def describe_interfaces(chosen: Mapping[str, UsedInterface]) -> Finding:
    names = "; ".join(f"{name} {interface.name} ({interface.address})" for name, interface in chosen.items())
    return passed("interface", f"Workers would use: {names}.")


def judge_connections(connections: Sequence[Connection]) -> list[Finding]:
    """Names the machine at which connections fail, and slow ones."""
    failed = [connection for connection in connections if connection.error is not None]
    findings = [_describe_failure(connection, connections) for connection in failed]
    measured = [connection for connection in connections if connection.bits_per_second]
    rates = {(one.source, one.target): one.bits_per_second for one in measured}
    findings += _find_slow(rates)
    for one in measured:
        if one.seconds > FAR_SECONDS:
            sentence = f"A round trip from {one.source} to {one.target} takes {one.seconds * 1e3:,.1f} ms."
            remedy = "Choose machines in one place: every step has several exchanges."
            findings.append(Finding(Level.WARN, "network", one.source, sentence, remedy))
    if findings or not measured:
        return findings
    least, most = min(rates.values()), max(rates.values())
    trip = max(one.seconds for one in measured)
    sentence = (
        f"{len(connections)} connections in both directions: {_bits(least)} to {_bits(most)}, round trips up to "
        f"{trip * 1e3:,.2f} ms."
    )
    return [passed("network", sentence)]


def _describe_failure(connection: Connection, connections: Sequence[Connection]) -> Finding:
    back = [one for one in connections if (one.source, one.target) == (connection.target, connection.source)]
    works = bool(back) and all(one.error is None for one in back)
    direction = f" The other direction works: {connection.target} reaches {connection.source}." if works else ""
    sentence = (
        f"{connection.source} does not reach {connection.target} at {connection.place} ({connection.purpose}): "
        f"{connection.error}.{direction}"
    )
    remedy = "Let the firewall pass TCP and UDP between all machines of the launch, on all ports."
    return Finding(Level.FAIL, "network", connection.target, sentence, remedy)


def _find_slow(rates: Mapping[tuple[str, str], float]) -> list[Finding]:
    """A machine whose connections are all slow is named once; otherwise each slow connection is."""
    slow = {pair: rate for pair, rate in rates.items() if rate < SLOW_BITS or rate < 0.2 * max(rates.values())}
    hosts = {host for pair in rates for host in pair}
    culprits = [
        host for host in sorted(hosts) if len(hosts) > 2 and all(pair in slow for pair in rates if host in pair)
    ]
    if len(culprits) != 1:
        culprits = []
    findings = []
    for culprit in culprits:
        rate = min(rate for pair, rate in slow.items() if culprit in pair)
        findings.append(_describe_slow(f"The connection of {culprit} carries {_bits(rate)} only.", culprit, rate))
    for (source, target), rate in slow.items():
        if source not in culprits and target not in culprits:
            sentence = f"The connection from {source} to {target} carries {_bits(rate)} only."
            findings.append(_describe_slow(sentence, source, rate))
    return findings


def _describe_slow(sentence: str, host: str, rate: float) -> Finding:
    remedy = "Look at its cable, switch port or machine type; `lockstep plan` says what another link would give."
    return Finding(Level.FAIL if rate < USELESS_BITS else Level.WARN, "network", host, sentence, remedy)


def explain_error(error: LockstepError) -> str:
    """Returns the end of a sentence about a connection that failed."""
    text = error.message.rstrip(".")
    return "nothing answers (a firewall?)" if "timed out" in text else text


def _bits(rate: float) -> str:
    return f"{rate / 1e9:,.1f} Gbit/s" if rate >= 1e9 else f"{rate / 1e6:,.3g} Mbit/s"
