"""How the processes of a job make sure that all of them belong to it, before they believe anything else.

Each proves that it knows the job's secret: first by an entry in the rendezvous store, then in every process group, whose
connections are new ones. This keeps strangers out at the start. It does not encrypt: who can change the traffic of a
network later is not noticed.
"""

import re
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

import torch.distributed as dist

from lockstep.errors import LockstepError
from lockstep.job_secret import is_signed, read_secret, sign
from lockstep.messages import exchange_bytes
from lockstep.signed_store import DIGEST_BYTES, ForeignEntry, SignedStore

NONCE_BYTES, CLAIM_BYTES = 32, 224
LOOK_SECONDS = 0.02
_UNUSUAL = re.compile(r"[^\w.:% -]", re.ASCII)
REMEDY = (
    "Give all workers the same LOCKSTEP_SECRET_FILE. If they have it, another program tried to join: let only the "
    "machines of the job reach each other."
)


class Stranger(LockstepError):
    """A process that does not know the job's secret takes part in the launch."""


class MissingMembers(Exception):
    """Some processes of the launch have not signed in in time."""

    def __init__(self, ranks: Sequence[int], size: int) -> None:
        super().__init__(ranks, size)
        self.ranks, self.size = list(ranks), size


def open_group(
    name: str, ranks: Sequence[int] | None, timeout: timedelta, backend: str | None = None
) -> dist.ProcessGroup | None:
    """Called by all processes: makes a process group of `ranks` (None: all) and lets its members prove that they belong to
    the job. Returns None in a process that is not a member."""
    group = dist.new_group(None if ranks is None else list(ranks), timeout=timeout, backend=backend)
    if not isinstance(group, dist.ProcessGroup):
        return None
    check_members(name, group, read_secret())
    return group


def check_members(name: str, group: dist.ProcessGroup, secret: bytes, device: str = "cpu") -> None:
    """The first exchange in a process group: all members send something random and then its digest with the secret. Raises
    Stranger if one of them does not know the secret."""
    size, rank = group.size(), group.rank()
    if not secret or size == 1:
        return
    claim = describe_this_process().encode("ascii", "replace")[:CLAIM_BYTES].ljust(CLAIM_BYTES)
    heads = exchange_bytes(secrets.token_bytes(NONCE_BYTES) + claim, group, device)

    def name_proof(member: int) -> str:
        return f"member {name} {member} of {size}"

    proofs = exchange_bytes(sign(secret, name_proof(rank), b"".join(heads)), group, device)
    strangers = [
        member
        for member, proof in enumerate(proofs)
        if not is_signed(secret, name_proof(member), b"".join(heads), proof)
    ]
    if strangers:
        claims = {member: head[NONCE_BYTES:].decode("ascii", "replace") for member, head in enumerate(heads)}
        raise Stranger(describe_strangers(rank, strangers, claims, list_peer_addresses()), REMEDY)


def sign_in(store: SignedStore, port: int, rank: int, size: int) -> None:
    """Writes who this worker is into the rendezvous store, which listens at `port`, and waits until all others have done so
    with the same secret. Raises MissingMembers if they have not done so within the time-out of the store."""
    store.set(f"member/{rank}", describe_this_process())
    claims: dict[int, str] = {}
    clients = set[str]()
    deadline = time.monotonic() + store.store.timeout.total_seconds()  # type: ignore[attr-defined]
    for member in range(size):
        clients |= _await_member(store, member, port if rank == 0 else None, deadline)
        if time.monotonic() >= deadline:
            missing = [other for other in range(size) if not store.check([f"member/{other}"])]
            if missing:
                raise MissingMembers(missing, size)
        try:
            claims[member] = store.get(f"member/{member}").decode("ascii", "replace")
        except ForeignEntry:
            unsigned = bytes(store.store.get(f"member/{member}"))
            claims[member] = unsigned[DIGEST_BYTES:][:CLAIM_BYTES].decode("ascii", "replace")
            peers = sorted(clients.union(list_clients(port) if rank == 0 or member else list_peer_addresses()))
            raise Stranger(describe_strangers(rank, [member], claims, peers), REMEDY) from None


def _await_member(store: SignedStore, member: int, port: int | None, deadline: float) -> set[str]:
    """Waits for the entry of a member; returns the addresses that were connected to `port` until then. A stranger may
    disconnect as soon as it has written."""
    if port is None:
        try:
            store.wait([f"member/{member}"], timedelta(seconds=max(0.001, deadline - time.monotonic())))
        except dist.DistNetworkError:
            sentence = "The first process has ended the rendezvous before all had joined."
            raise LockstepError(sentence, "Its own message says why.") from None
        except dist.DistStoreError:
            pass  # it is too late, which the caller sees
        return set()
    clients = set(list_clients(port))
    while not store.check([f"member/{member}"]) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
        clients.update(list_clients(port))
    return clients


def describe_strangers(rank: int, strangers: Sequence[int], claims: Mapping[int, str], peers: Sequence[str]) -> str:
    """Returns a sentence of worker `rank`. `claims` is what each member says of itself, which a stranger may invent;
    `peers` are the addresses of connections, as the system knows them."""
    names = [f"worker {member}, which says that it runs on {_clean(claims[member])}," for member in strangers]
    sentence = f"{' and '.join(names)} does not know the secret that worker {rank} has."
    explained = {
        word for member, claim in claims.items() if member not in strangers for word in _clean(claim).split(" ")
    }
    foreign = [peer for peer in peers if peer not in explained]
    if foreign:
        sentence += f" It connects from {' or '.join(foreign)}."
    elif peers:
        sentence += f" It connects from the machine of another worker ({' or '.join(peers)})."
    return sentence[0].upper() + sentence[1:]


def _clean(claim: str) -> str:
    return _UNUSUAL.sub("?", claim).strip()[:100]


def describe_this_process() -> str:
    """Returns host name and addresses of this process, by which the others see it."""
    return " ".join([socket.gethostname()[:64], *_list_addresses(of_peers=False)])


def list_peer_addresses() -> list[str]:
    """Returns the addresses to which this process has connections."""
    return _list_addresses(of_peers=True)


def list_clients(port: int) -> list[str]:
    """Returns the addresses that are connected to a port of this machine; none if the system does not tell."""
    import psutil

    try:
        connections = psutil.net_connections("tcp")
    except (OSError, psutil.Error):
        return []
    ends = [one.raddr for one in connections if one.laddr and one.laddr.port == port and one.raddr]
    return sorted({end.ip.removeprefix("::ffff:") for end in ends})


def _list_addresses(of_peers: bool) -> list[str]:
    import psutil

    try:
        connections = psutil.Process().net_connections("tcp")
    except (OSError, psutil.Error):
        return []
    ends = [one.raddr if of_peers else one.laddr for one in connections if one.status == psutil.CONN_ESTABLISHED]
    return sorted({end.ip.removeprefix("::ffff:") for end in ends if end})
