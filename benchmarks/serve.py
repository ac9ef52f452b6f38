"""Measures the translation server with one client and with many.

    python benchmarks/serve.py MODEL [--clients 64] [--seconds 20] [--rounds 3] [--text FILE]

Starts `lockstep serve MODEL` on a free port. Every client has one connection and sends the next sentence when it has the
answer to the last one. Clients run in a process of their own, which uses little more than its sockets. Rounds measure one
client and many clients in turn; figures are those of all rounds together. Sentences come from the file, or from the
built-in English grammar, and no client repeats one before it has sent all.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import TypedDict
from urllib.parse import urlsplit

START_SECONDS = 120.0


class Sample(TypedDict):
    """What some clients saw: seconds of every request, and the status of those that failed."""

    seconds: float
    latencies: list[float]
    errors: list[int]


@dataclass
class Figures:
    """All rounds with one number of clients."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    errors: list[int] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        self.seconds += sample["seconds"]
        self.latencies += sample["latencies"]
        self.errors += sample["errors"]

    @property
    def rate(self) -> float:
        return len(self.latencies) / self.seconds


@dataclass(frozen=True)
class RunningServer:
    """A server process and its address."""

    process: "subprocess.Popen[str]"
    address: str


@contextmanager
def run_server(*words: object) -> Iterator[RunningServer]:
    """Runs `lockstep serve` with these arguments on a free port until the block ends."""
    command = [sys.executable, "-m", "lockstep", "serve", *map(str, words)]
    if "--port" not in words:
        command += ["--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield RunningServer(process, _read_address(process))
    finally:
        process.terminate()
        process.communicate(timeout=START_SECONDS)


def _read_address(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if match := re.search(r"http://\S+", line):
            return match[0]
    raise RuntimeError(process.communicate()[1])


async def send_requests(
    address: str, sentences: Iterator[str], direction: dict[str, str], end: float, sample: Sample
) -> None:
    """Is one client: sends sentences over one connection until the time is over."""
    host, port = str(urlsplit(address).hostname), int(urlsplit(address).port or 80)
    reader, writer = await asyncio.open_connection(host, port)
    head = f"POST /translate HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: "
    while (begin := time.perf_counter()) < end:
        body = json.dumps({"q": next(sentences)} | direction).encode()
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", answer)
        text = await reader.readexactly(int(length[1]) if length else 0)
        status = int(answer.split(b" ", 2)[1])
        if status != 200 or "translatedText" not in json.loads(text):
            sample["errors"].append(status)
        sample["latencies"].append(time.perf_counter() - begin)
    writer.close()


async def run_clients(
    address: str, clients: int, seconds: float, sentences: list[str], direction: dict[str, str]
) -> Sample:
    sample = Sample(seconds=0.0, latencies=[], errors=[])
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            own = islice(cycle(sentences), number * len(sentences) // clients, None)
            group.create_task(send_requests(address, own, direction, begin + seconds, sample))
    sample["seconds"] = time.perf_counter() - begin
    return sample


def measure(address: str, clients: int, seconds: float, text: Path, direction: dict[str, str]) -> Sample:
    """Runs the clients in a process of their own."""
    command = [sys.executable, __file__, "--address", address, "--clients", str(clients), "--seconds", str(seconds)]
    command += ["--text", str(text), "--direction", json.dumps(direction)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    sample: Sample = json.loads(output)
    return sample


def write_sentences(path: Path, count: int = 20_000) -> Path:
    from lockstep import demo_corpus

    pairs = islice(demo_corpus.generate_pairs(7, "train"), count)
    path.write_text("".join(f"{english}\n" for english, _ in pairs), encoding="utf-8")
    return path


def read_direction(address: str) -> dict[str, str]:
    from urllib.request import urlopen

    with urlopen(f"{address}/frontend/settings") as response:
        language = json.load(response)["language"]
    return {side: language[side]["code"] for side in ("source", "target")}


def print_table(figures: dict[int, Figures]) -> None:
    print(f"{'clients':>8} {'requests/s':>11} {'p50':>9} {'p99':>9} {'requests':>9} {'errors':>7}")
    for clients, own in figures.items():
        cuts = statistics.quantiles(own.latencies, n=100)
        print(
            f"{clients:8} {own.rate:11.1f} {1000 * cuts[49]:6.1f} ms {1000 * cuts[98]:6.1f} ms "
            f"{len(own.latencies):9,} {len(own.errors):7}"
        )
    one, many = figures.values()
    print(f"{many.rate / one.rate:.2f} times the requests of one client (goal: at least 3)")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="export folder or run")
    parser.add_argument("--clients", type=int, default=64, help="how many clients are many")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="how often each number of clients is measured")
    parser.add_argument("--text", type=Path, help="text file with one source sentence per line")
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--direction", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model is None and options.address is None:
        parser.error("name a model")
    return options


def main() -> None:
    options = parse_options()
    if options.address is not None:
        sentences = [line for line in options.text.read_text(encoding="utf-8").splitlines() if line.strip()]
        work = run_clients(options.address, options.clients, options.seconds, sentences, options.direction)
        print(json.dumps(asyncio.run(work)))
        return
    figures = {1: Figures(), options.clients: Figures()}
    with tempfile.TemporaryDirectory() as scratch, run_server(options.model) as server:
        text = options.text or write_sentences(Path(scratch, "sentences.txt"))
        direction = read_direction(server.address)
        measure(server.address, options.clients, 1.0, text, direction)  # warms up
        for _ in range(options.rounds):
            for clients, own in figures.items():
                own.add(measure(server.address, clients, options.seconds, text, direction))
    print(f"{options.model}: {direction['source']} to {direction['target']}, {len(os.sched_getaffinity(0))} cores")
    print_table(figures)


if __name__ == "__main__":
    main()
