"""The host of process 0, where it was concluded and not told: which of its addresses to use, and whether it is the right
one. A wrong one would let all processes wait for somebody who never comes."""

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import replace

from lockstep.errors import LockstepError
from lockstep.launch.environments.placement import WorkerPlacement

Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface


def settle_host(placement: WorkerPlacement) -> WorkerPlacement:
    """Returns the placement with an address of the first host that this one can reach. Process 0 checks that it is on that
    host."""
    if not placement.is_derived or placement.host is None:
        return placement
    own = list_own_interfaces()
    host = choose_address([placement.host, *placement.alternatives], own)
    if placement.rank == 0:
        _check_is_here(host, own, placement)
    return replace(placement, host=host)


def list_own_interfaces() -> list[Interface]:
    """Returns the addresses of this machine with their networks."""
    import psutil

    interfaces: list[Interface] = []
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family == socket.AF_INET and one.netmask:
                interfaces.append(ipaddress.IPv4Interface(f"{one.address}/{one.netmask}"))
            elif one.family == socket.AF_INET6:
                interfaces.append(ipaddress.IPv6Interface(one.address.partition("%")[0]))
    return interfaces


def choose_address(addresses: Sequence[str], own: Sequence[Interface]) -> str:
    """Returns the first address that is in a network of this machine, or else the first one."""
    for text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if any(address in interface.network for interface in own if not interface.is_loopback):
            return text
    return addresses[0]


def _check_is_here(host: str, own: Sequence[Interface], placement: WorkerPlacement) -> None:
    if host.partition(".")[0] == socket.gethostname().partition(".")[0]:
        return
    try:
        addresses = {str(place[4][0]).partition("%")[0] for place in socket.getaddrinfo(host, None)}
    except OSError:
        addresses = set()
    if not addresses & {str(interface.ip) for interface in own}:
        raise LockstepError(
            f"Process 0 of {placement.family} runs on {socket.gethostname()}, but {placement.names[-1]} names {host} as "
            "the first host.",
            f"Set MASTER_ADDR={socket.gethostname()} for all processes (mpirun: -x MASTER_ADDR={socket.gethostname()}).",
            code=2,
        )
