"""Small values that processes of one group exchange: plain JSON in tensors of bytes.

Nothing is pickled. Whoever could send a pickle to a worker could run any code in it.
"""

import json
import struct
from typing import Any

import torch
import torch.distributed as dist

from lockstep.errors import LockstepError

MOST_BYTES = 2**28
"""The longest message of one process that is believed: a wrong length must not fill the memory."""
_HEAD = struct.Struct("<?q")  # whether the value could be written, and the length of the message


def exchange_bytes(own: bytes, group: dist.ProcessGroup, device: str = "cpu") -> list[bytes]:
    """Returns what each process of a group gives, in rank order. All must give equally many bytes."""
    sent = torch.frombuffer(bytearray(own), dtype=torch.uint8).to(device)
    received = [torch.empty_like(sent) for _ in range(group.size())]
    group.allgather([received], [sent]).wait()
    return [part.cpu().numpy().tobytes() for part in received]


def gather(value: object, group: dist.ProcessGroup) -> list[Any]:
    """Returns the value of each process of a group, in rank order, on every one of them. A value that cannot be sent raises
    a TypeError on all."""
    try:
        content, is_sendable = encode(value), True
    except TypeError as error:
        content, is_sendable = str(error).encode(), False
    heads = [_HEAD.unpack(head) for head in exchange_bytes(_HEAD.pack(is_sendable, len(content)), group)]
    for rank, (_, length) in enumerate(heads):
        if not 0 < length <= MOST_BYTES:
            raise LockstepError(
                f"Worker {rank} announced a message of {length:,} bytes; {MOST_BYTES:,} are the most.",
                "If all workers run the same version, another program has joined the job.",
            )
    longest = max(length for _, length in heads)
    contents = [
        content[:length]
        for content, (_, length) in zip(exchange_bytes(content.ljust(longest), group), heads, strict=True)
    ]
    for rank, (was_sendable, _) in enumerate(heads):
        if not was_sendable:
            raise TypeError(f"worker {rank}: {contents[rank].decode(errors='replace')}")
    return [_decode(content, rank) for rank, content in enumerate(contents)]


def encode(value: object) -> bytes:
    check_plain(value)
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _decode(content: bytes, rank: int) -> object:
    try:
        return json.loads(content.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise LockstepError(
            f"Worker {rank} sent a message that is not JSON.",
            "If all workers run the same version, another program has joined the job.",
        ) from None


def check_plain(value: object) -> None:
    """Raises a TypeError unless the receiver gets an equal value of the same types: no tuples, which would become lists, no
    objects, no numbers of numpy, no keys but strings."""
    if isinstance(value, list) and type(value) is list:
        for item in value:
            check_plain(item)
    elif isinstance(value, dict) and type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"the key {key!r} is not a string and cannot be sent as JSON")
            check_plain(item)
    elif value is not None and type(value) not in (bool, int, float, str):
        raise TypeError(f"{value!r:.200} is a {type(value).__name__} and cannot be sent as JSON")
