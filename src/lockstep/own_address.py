"""The addresses at which the other hosts of a job reach this one."""

import ipaddress
import socket

from lockstep.run import environment_variables

LOOPBACK = "127.0.0.1"


def find_own_addresses() -> tuple[str, str]:
    """Returns the address at which a program of this host listens for the other hosts, and the one under which they reach
    it: that of the route to the first worker."""
    rendezvous = environment_variables.rendezvous()
    if rendezvous is None or environment_variables.local_world_size(default=0) == environment_variables.world_size():
        return LOOPBACK, LOOPBACK
    try:
        family, kind, _, _, place = socket.getaddrinfo(rendezvous[0], int(rendezvous[1]), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)  # sends nothing
            own = str(probe.getsockname()[0])
    except OSError:
        return LOOPBACK, LOOPBACK
    if not ipaddress.ip_address(own.partition("%")[0]).is_loopback:
        return own, own
    return "::" if family == socket.AF_INET6 else "0.0.0.0", rendezvous[0]  # noqa: S104
