"""Slurm's lists: hosts such as `a[01-03,7],b2` and tasks per node such as `2(x3),1`.

`scontrol show hostnames` would expand the first one, but containers do not have it.
"""

import re
from collections.abc import Iterator

from lockstep.errors import LockstepError

MOST_HOSTS = 100_000
_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_TASKS = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?", re.ASCII)


def expand_hosts(text: str) -> list[str]:
    """Returns the hosts of a list, in its order."""
    hosts: list[str] = []
    for part in _split_outside(text.strip()):
        for host in _expand_part(part, text):
            hosts.append(host)
            if len(hosts) > MOST_HOSTS:
                raise _refuse(text)
    if not all(hosts):
        raise _refuse(text)
    return hosts


def _split_outside(text: str) -> list[str]:
    """Splits a list at the commas outside brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _expand_part(part: str, text: str) -> Iterator[str]:
    """Yields the hosts of a part such as `rack[1-2]n[01-03]`: the last bracket counts fastest."""
    head, bracket, rest = part.partition("[")
    if "]" in head:
        raise _refuse(text)
    if not bracket:
        yield head
        return
    inside, closing, tail = rest.partition("]")
    if not closing or "[" in inside:
        raise _refuse(text)
    for number in _expand_numbers(inside, text):
        for end in _expand_part(tail, text):
            yield head + number + end


def _expand_numbers(inside: str, text: str) -> Iterator[str]:
    """Yields the numbers of `01-03,7` with their leading zeros."""
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise _refuse(text)
        first, last = match[1], match[2] or match[1]
        if len(first) > 18 or len(last) > 18 or int(last) < int(first):
            raise _refuse(text)
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def expand_task_counts(text: str) -> list[int]:
    """Returns the tasks of each node of a text such as `2(x3),1`."""
    counts: list[int] = []
    for piece in text.split(","):
        match = _TASKS.fullmatch(piece.strip())
        if match is None:
            raise LockstepError(f"{text!r} is no list of tasks per node.", "Slurm writes it as 2(x3),1.", code=2)
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _refuse(text: str) -> LockstepError:
    return LockstepError(
        f"{text[:200]!r} is no list of hosts.", "Slurm writes it as a[01-03,7],b2; or set MASTER_ADDR.", code=2
    )
