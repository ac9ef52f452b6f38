"""All faults, and what a sentence must say to be right: who it is, and what is wrong."""

import re
from dataclasses import dataclass

from fault_cases import places
from fault_cases.places import Place

FAULT_STEP = 60
WORKER_1 = r"^(Error: )?(Host \S+: )?Worker 1\b"
STANDS = r"stood still.*"
OTHER_HOST = r"(Host h[12] \(|[Cc]onnection (between|to) (host )?h[12])"


@dataclass(frozen=True)
class Case:
    """`who` and `cause` are regular expressions, both of which a sentence must match. A fault inside is one of
    LOCKSTEP_FAULT; one from outside is made by the place."""

    name: str
    who: str = ""
    cause: str = ""
    inside: str = ""
    place: type[Place] = Place
    exit_codes: tuple[int, ...] = (0,)  # with which the training may end; none: it is stopped
    is_hard: bool = True  # nobody can train on
    settings: tuple[str, ...] = ()
    programs: int = 0  # that keep a core busy

    @property
    def is_control(self) -> bool:
        return not self.who

    def is_right(self, sentence: str) -> bool:
        return bool(re.search(self.who, sentence) and re.search(self.cause, sentence))


LONG = ("train.steps=1000000",)
"""For trials that are stopped as soon as the fault is named."""
BIG_MESSAGES = (*LONG, "model.width=160", "model.feed_forward=480", "model.encoder_layers=2", "model.decoder_layers=2")
CASES = (
    Case("SIGKILL", WORKER_1, "SIGKILL(?!.*, by the kernel)", "kill:phase=backward"),
    Case("SIGTERM", r"\b[Ww]orker 1 got", "got SIGTERM", "term:phase=backward", exit_codes=(143,)),
    Case("segmentation fault", WORKER_1, "SIGSEGV", "segv:phase=backward"),
    Case("abort", WORKER_1, "SIGABRT", "abort:phase=forward"),
    Case("exception", WORKER_1, r"exit code 1\b|fault injected", "error:phase=backward"),
    Case(
        "out of memory",
        WORKER_1,
        r"(?<!or )by the kernel because memory ran out",
        "memory:phase=forward",
        places.LittleMemory,
    ),
    Case("SIGSTOP", WORKER_1, f"{STANDS}is stopped", "stop:phase=forward"),
    Case("SIGSTOP in the exchange", WORKER_1, f"{STANDS}is stopped", "stop:phase=merge"),
    Case("endless loop in the model", WORKER_1, f"{STANDS}computes without progress", "loop:phase=forward"),
    Case("GIL held", WORKER_1, f"{STANDS}(interpreter|GIL)", "gil:phase=backward"),
    Case("sleep in the input", WORKER_1, f"{STANDS}in (the )?input.*(sleeps|waits)", "sleep:phase=input"),
    Case("last exchange of a step skipped", WORKER_1, "skipped an exchange", "skip:phase=agree"),
    Case("exchange of gradients skipped", WORKER_1, "skipped an exchange", "skip:phase=merge"),
    Case("disk full", r"Error: |Worker \d", "No space left on device", place=places.FullDisk, exit_codes=(1,)),
    Case("disk hangs", r"Workers? \d", "waits? for a disk", place=places.HangingDisk),
    Case("link down both ways", OTHER_HOST, "lost|not heard", place=places.LinkDown, settings=LONG),
    Case("link down one way", OTHER_HOST, "lost|not heard", place=places.LinkDownOneWay, settings=LONG),
    Case("rendezvous host dead", r"Host h1 \(", "lost|not heard", place=places.FirstHostDead, settings=LONG),
    Case(
        "link at 1 Mbit/s", OTHER_HOST, r"slow|[kM]?bit/s", place=places.SlowLink, settings=BIG_MESSAGES, is_hard=False
    ),
    Case(
        "a fifth of a core",
        WORKER_1,
        "(slower|stood).*throttle",
        place=places.FifthOfACore,
        settings=LONG,
        is_hard=False,
    ),
    Case("twice as slow", WORKER_1, "slower.*other programs", place=places.SharedCore, settings=LONG, is_hard=False),
)
CONTROLS = (
    Case("nothing", settings=LONG),
    Case("nothing, beside a busy program", settings=LONG, programs=1),
    Case("nothing, two hosts", place=places.Hosts, settings=LONG),
)
CONTROL_SHARES = (12, 5, 3)
"""Of twenty control trials."""
