"""How the vector of all parameters is cut: a part for each holder, in packets that travel one by one."""

from dataclasses import dataclass

from lockstep.parallel.flat_parameters import FlatParameters


@dataclass(frozen=True)
class Packet:
    """A stretch of the vector. With `width` it holds rows of a table, of which only those travel that a step uses."""

    begin: int
    size: int
    table: str = ""
    first: int = 0  # row
    width: int = 0

    @property
    def span(self) -> slice:
        return slice(self.begin, self.begin + self.size)


def cut(size: int, parts: int, packet: int) -> list[list[int]]:
    """`size` values in equal parts, and these in packets of at most `packet` values, as equal as can be."""
    ends = [size * part // parts for part in range(parts + 1)]
    return [_even(end - begin, packet) for begin, end in zip(ends, ends[1:], strict=False)]


def _even(size: int, largest: int) -> list[int]:
    count = max(1, -(-size // largest))
    return [size * (i + 1) // count - size * i // count for i in range(count)]


def lay_out(flat: FlatParameters, tables: list[str], parts: int, largest: int) -> list[list[Packet]]:
    """The packets of every part: first one of each of these tables, which lie first in the vector, then the rest."""
    found: list[list[Packet]] = [[] for _ in range(parts)]
    for name in tables:
        begin = flat.spans[name][0]
        rows, width = flat.parameters[name].shape
        ends = [rows * part // parts for part in range(parts + 1)]
        for part, (first, end) in enumerate(zip(ends, ends[1:], strict=False)):
            found[part].append(Packet(begin + first * width, (end - first) * width, name, first, width))
    begin = flat.spans[tables[-1]][1] if tables else 0
    for packets, sizes in zip(found, cut(len(flat.values) - begin, parts, largest), strict=True):
        for size in sizes:
            packets.append(Packet(begin, size))
            begin += size
    return found
