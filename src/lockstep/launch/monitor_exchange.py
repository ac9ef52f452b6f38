"""How the monitors of several hosts tell each other what they see: small datagrams, twice a second.

Every monitor sends to every other one, so there is no common server whose loss would end the exchange, and a lost host is
simply one that is not heard. A message is one line of JSON with a signature; the workers agreed on its key when they
joined. Whatever is too long, not signed, repeated or not well-formed is ignored. A client of torch's store would need
torch in every monitor, 200 MB, and the store dies with its host.
"""

import hashlib
import hmac
import json
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from lockstep.heartbeat import PHASES, Heartbeat
from lockstep.launch.process_state import ProcessState
from lockstep.launch.stall_watch import View
from lockstep.monitor_folder import Peer

T = TypeVar("T")
MOST_BYTES = 16_000
MOST_WORKERS = 256
MOST_CHARACTERS = 600
"""The length of a sentence about a worker."""
KINDS = ("stall", "died", "ended", "host lost")
SIGNATURE = 64


@dataclass(frozen=True)
class News:
    """What a monitor has found out about a worker of its host, or about another host."""

    what: str  # one of KINDS
    sentence: str
    rank: int | None = None
    evidence: str = ""
    host: str = ""  # that is lost


@dataclass
class Message:
    """What one monitor says about its host."""

    number: int
    view: View
    news: list[News] = field(default_factory=list)
    is_last: bool = False  # the workers of the host are gone

    def encode(self, now: float) -> bytes:
        """Returns the message as JSON. Times are told as ages: every machine has a clock of its own."""
        workers = []
        for rank, beat in list(self.view.beats.items())[:MOST_WORKERS]:
            state = self.view.states.get(rank, ProcessState(""))
            place = rank, beat.step, beat.count, PHASES.index(beat.phase)
            workers.append([*place, round(now - beat.time, 2), round(beat.slowest, 2), state.letter, state.is_frozen])
        news = [[one.what, one.sentence[:MOST_CHARACTERS], one.rank, one.evidence, one.host] for one in self.news[-4:]]
        facts = {"n": self.number, "w": workers, "s": news, "l": self.is_last}
        return json.dumps(facts, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, text: bytes, now: float) -> "Message":
        """Reads a message. Raises ValueError, TypeError or KeyError where it is not well-formed."""
        facts = json.loads(text)
        view = View()
        for rank, step, count, phase, age, slowest, letter, is_frozen in facts["w"][:MOST_WORKERS]:
            numbers = _check(rank, int), _check(step, int), _check(count, int)
            times = float(_check(age, float, int)), float(_check(slowest, float, int))
            if min(*numbers, *times) < 0 or not 0 <= _check(phase, int) < len(PHASES):
                raise ValueError("a number is out of range")
            view.beats[rank] = Heartbeat(step, count, PHASES[phase], now - times[0], times[1])
            view.states[rank] = ProcessState(_check(letter, str)[:1], 0.0, _check(is_frozen, bool))
        news = [_read_news(*one) for one in facts["s"][:4]]
        return cls(_check(facts["n"], int), view, news, _check(facts["l"], bool))


def _read_news(what: str, sentence: str, rank: int | None, evidence: str, host: str) -> News:
    if what not in KINDS or not (rank is None or type(rank) is int):
        raise ValueError("unknown news")
    return News(what, _check(sentence, str)[:MOST_CHARACTERS], rank, _check(evidence, str)[:20], _check(host, str)[:64])


def _check(value: object, *kinds: type[T]) -> T:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError("a value has another type")
    return value


@dataclass
class Neighbour:
    """Another host, as this one hears it."""

    peer: Peer
    places: list[tuple[str, int]]  # addresses to which it is sent
    message: Message | None = None  # the last one
    heard_at: float | None = None  # of this machine's monotonic clock

    def is_silent(self, now: float, seconds: float) -> bool:
        """Was it heard once, did not take its leave, and is not heard for so long?"""
        if self.message is None or self.heard_at is None or self.message.is_last:
            return False
        return now - self.heard_at > seconds


class Exchange:
    """The socket of a monitor, and what it has heard."""

    def __init__(self, address: str) -> None:
        place = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)[0]
        self._socket = socket.socket(place[0], socket.SOCK_DGRAM)
        self._socket.bind(place[4])
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self.neighbours: list[Neighbour] = []
        self._family, self._key, self._number, self._own = place[0], b"", 0, 0

    def join(self, peers: list[Peer], key: bytes, own: Peer) -> None:
        """Learns who the others are. The place of a monitor in the list names the sender of its messages."""
        self._key = key
        for number, peer in enumerate(peers):
            if (peer["host"], peer["port"]) == (own["host"], own["port"]):
                self._own = number
            self.neighbours.append(Neighbour(peer, self._find_places(peer)))
        self.neighbours[self._own].places = []

    def _find_places(self, peer: Peer) -> list[tuple[str, int]]:
        with suppress(OSError):
            infos = socket.getaddrinfo(peer["address"], peer["port"], self._family, socket.SOCK_DGRAM)
            return [(str(place[0]), int(place[1])) for *_, place in infos[:1]]
        return []

    @property
    def others(self) -> list[Neighbour]:
        return [one for number, one in enumerate(self.neighbours) if number != self._own]

    def send(self, message: Message) -> None:
        """Sends a message to all others. One that cannot be reached is not heard either: that is noticed elsewhere."""
        self._number += 1
        message.number = self._number
        text = b"%d " % self._own + message.encode(time.monotonic())
        if len(text) + SIGNATURE > MOST_BYTES:
            return
        for neighbour in self.others:
            for place in neighbour.places:
                with suppress(OSError):
                    self._socket.sendto(self._sign(text) + text, place)

    def receive(self) -> None:
        """Takes all messages that have arrived."""
        while True:
            try:
                text = self._socket.recv(MOST_BYTES + 1)
            except OSError:
                return
            if len(text) <= MOST_BYTES and self._key:
                with suppress(ValueError, TypeError, KeyError, IndexError, RecursionError):
                    self._take(text)

    def _take(self, text: bytes) -> None:
        signature, text = text[:SIGNATURE], text[SIGNATURE:]
        if not hmac.compare_digest(signature, self._sign(text)):
            return
        number, _, line = text.partition(b" ")
        neighbour, now = self.neighbours[int(number)], time.monotonic()
        message = Message.decode(line, now)
        if neighbour.message is None or message.number > neighbour.message.number:
            neighbour.message, neighbour.heard_at = message, now

    def _sign(self, text: bytes) -> bytes:
        return hmac.new(self._key, text, hashlib.sha256).hexdigest().encode()

    def close(self) -> None:
        self._socket.close()
