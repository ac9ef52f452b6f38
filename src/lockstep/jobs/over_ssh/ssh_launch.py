"""Watches a launch over ssh from its first to its last process.

The command that watches it is the only one that knows all hosts: it starts torchrun on each, shows what they print, names a
host that is lost, and ends everything everywhere when it ends itself.
"""

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import FrameType, TracebackType
from typing import Self

from pydantic import JsonValue

from lockstep.doctor.finding import list_names
from lockstep.errors import LockstepError
from lockstep.hosts.agent_channel import AgentChannel, ChannelLost
from lockstep.job_secret import make_secret_environment
from lockstep.jobs.job import Job
from lockstep.jobs.over_ssh.host_output import HostOutput
from lockstep.jobs.over_ssh.prepare_hosts import (
    examine_again,
    examine_hosts,
    find_variables,
    greet,
    open_channel,
    read_payloads,
    send_to_all,
)
from lockstep.jobs.over_ssh.torchrun_command import (
    HostCommand,
    list_ranks,
    make_absolute,
    make_commands,
    name_ranks,
    read_least_nodes,
)
from lockstep.jobs.over_ssh.watched_host import HostState, WatchedHost
from lockstep.launch.supervisor import RESUME

STOP_SECONDS = 45.0
"""torchrun gives its workers 30 seconds to save."""
STRAGGLE_SECONDS = 60.0
"""How long the others may run after one host's torchrun has failed."""
LOSS_SECONDS = 3.0
"""How long the others may run when the launch ends because a host is lost: they wait for it, and cannot save."""
RETRY_SECONDS = 5.0
RETURN_SECONDS = 600.0
"""How long a lost host may be away, unless the others continue without it. torchrun's rendezvous waits as long."""
POLL_SECONDS = 0.2


class SshLaunch:
    """A launch, for the duration of a `with` block. Leaving the block ends everything on all hosts.

    SIGINT, SIGTERM and SIGHUP stop the training in order; a second one does not wait for it.
    """

    def __init__(self, job: Job, output: HostOutput) -> None:
        self.job, self.output = make_absolute(job), output
        self.commands = make_commands(job)
        self.signals: list[int] = []
        self._hosts: dict[str, WatchedHost] = {}
        self._channels: list[AgentChannel] = []  # all that were opened
        self._events: queue.SimpleQueue[tuple[AgentChannel | None, Mapping[str, JsonValue]]] = queue.SimpleQueue()
        self._secret = make_secret_environment()
        self._deadline, self._reason = float("inf"), ""
        self._is_prepared, self._is_over = False, threading.Event()
        self._returns = 0
        self._payloads = read_payloads(self.job)

    def __enter__(self) -> Self:
        numbers = [signal.SIGTERM, signal.SIGINT]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup has made it so
            numbers.append(signal.SIGHUP)
        self._handlers = {number: signal.signal(number, self._note_signal) for number in numbers}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        with ThreadPoolExecutor(max(1, len(self._channels))) as pool:
            list(pool.map(AgentChannel.close, self._channels))
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)
        if not self._is_prepared:
            if len(self.signals) > 1:
                os._exit(128 + number)  # the agents end when this process has
            self._is_over.set()
            raise SystemExit(128 + number)
        self._events.put((None, {}))

    def _check(self) -> None:
        """Raises if this launch has ended while a thread prepares something."""
        if self._is_over.is_set():
            raise LockstepError("Stopped.")

    def run(self) -> None:
        """Prepares the hosts, starts the training and waits for its end. Raises LockstepError if it fails."""
        self._prepare()
        self._is_prepared = True
        for host in self._hosts.values():
            host.start(self._secret, os.getcwd(), self.job.run)
        while not self._is_finished():
            channel, event = self._next_event()
            if channel is not None:
                self._handle(channel, event)
            self._handle_signals()
        self._judge_end()

    def _prepare(self) -> None:
        for command in self.commands:
            self._open(command)
        channels = [host.channel for host in self._hosts.values()]
        for channel in channels:
            greet(channel)
        machines = examine_hosts(self.job, self.commands, channels, self.output.say)
        for machine in machines:
            self._hosts[machine.name].variables = find_variables(self.job, machine)
        self._first_machine = machines[0]
        send_to_all(self._payloads, channels, self.output.say, self._check)

    def _open(self, command: HostCommand) -> None:
        channel = self._connect(command)
        self._hosts[command.host.name] = WatchedHost(command, channel)

    def _connect(self, command: HostCommand) -> AgentChannel:
        channels: list[AgentChannel] = []
        is_open = threading.Event()

        def on_event(name: str, event: Mapping[str, JsonValue]) -> None:
            is_open.wait()
            self._events.put((channels[0], event))

        channels.append(open_channel(self.job, command, on_event))
        is_open.set()
        self._channels.append(channels[0])
        return channels[0]

    def _next_event(self) -> tuple[AgentChannel | None, Mapping[str, JsonValue]]:
        try:
            return self._events.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return None, {}

    def _is_finished(self) -> bool:
        """Whether no torchrun runs any more, or the time to end is over."""
        is_running = any(host.state == HostState.RUNNING for host in self._hosts.values())
        return time.monotonic() > self._deadline or not is_running

    def _end_within(self, seconds: float, reason: str = "") -> None:
        self._deadline = min(self._deadline, time.monotonic() + seconds)
        self._reason = self._reason or reason

    def _handle(self, channel: AgentChannel, event: Mapping[str, JsonValue]) -> None:
        host = self._hosts[channel.name]
        match event["event"]:
            case "line":
                self.output.write(host.name, str(event["text"]), str(event["stream"]))
            case "back":
                self._take_back(host, channel)
            case "end" if host.channel is channel:
                self._note_exit(host, int(str(event["code"])))
            case "lost" if host.channel is channel and host.state != HostState.LOST:
                self._note_loss(host, channel.explain_loss().message)

    def _note_exit(self, host: WatchedHost, code: int) -> None:
        """Decides what follows when the torchrun of a host has ended."""
        host.state, host.code = HostState.ENDED, code
        if self.signals:
            return
        if code == 0:
            if host is self._first_host:  # the training has finished
                self._end_within(STRAGGLE_SECONDS)
        elif code < 0:
            host.state = HostState.RUNNING
            host.channel.close()
            self._note_loss(host, f"torchrun was killed by {signal.Signals(-code).name}.")
        else:
            lost = [other.name for other in self._hosts.values() if other.state == HostState.LOST]
            why = f" {list_names(lost)} did not come back." if lost else ""
            self._end_within(STRAGGLE_SECONDS, f"torchrun on {host.name} ended with exit code {code}.{why}")

    def _note_loss(self, host: WatchedHost, why: str) -> None:
        """Names a host that is gone, and decides what follows."""
        was_running = host.state == HostState.RUNNING
        host.state = HostState.LOST
        if not was_running or self.signals:
            return
        workers = sum(command.host.slots for command in self.commands)
        who = name_ranks(list_ranks(self.commands)[host.name], workers)
        sentence = f"Host {host.name} ({who}) is lost. {why}"
        self.output.say(sentence)
        running = sum(other.state == HostState.RUNNING for other in self._hosts.values())
        least = read_least_nodes(self.job)
        if host is self._first_host:
            self._end_within(LOSS_SECONDS, f"{sentence} The launch ends, because its rendezvous is there.")
        elif self._returns >= self.job.restarts and running < least:
            self._end_within(LOSS_SECONDS, f"{sentence} No restart is left (train.restarts={self.job.restarts}).")
        else:
            others = "continue without it" if running >= least else f"wait {RETURN_SECONDS / 60:.0f} minutes for it"
            self.output.say(f"The others {others}, from the last checkpoint.")
            self._returns += 1
            self._ask_running(WatchedHost.end_workers)  # they would wait until train.stall_seconds are over
            threading.Thread(target=self._reconnect, args=(host,), daemon=True).start()

    def _reconnect(self, host: WatchedHost) -> None:
        """Tries to reach a lost host again."""
        deadline = time.monotonic() + RETURN_SECONDS
        while not self._is_over.wait(RETRY_SECONDS) and time.monotonic() < deadline:
            channel = self._connect(host.command)
            try:
                greet(channel)
                address = self.commands[0].host.public_name
                machine = examine_again(host.command, channel, self._first_machine, address)
                host.variables = find_variables(self.job, machine)
                send_to_all(self._payloads, [channel], self.output.say, self._check)
                self._events.put((channel, {"event": "back"}))
                return
            except ChannelLost:
                continue
            except LockstepError as error:
                if not self._is_over.is_set():
                    self.output.say(str(error))
                channel.close()

    def _take_back(self, host: WatchedHost, channel: AgentChannel) -> None:
        """Starts torchrun on a host that has come back."""
        if self.signals:
            return
        self.output.say(f"Host {host.name} is back.")
        host.channel = channel
        try:
            host.start(self._secret, os.getcwd(), self.job.run)
        except LockstepError as error:
            self._note_loss(host, error.message)

    def _handle_signals(self) -> None:
        if self.signals and self._deadline == float("inf"):
            name = signal.Signals(self.signals[0]).name
            self.output.say(f"{name}: the workers save and stop. Once more ends them at once.")
            self._end_within(STOP_SECONDS)
            self._ask_running(lambda host: host.send_signal(signal.SIGTERM))
        if len(self.signals) > 1:
            self._end_within(0)

    @property
    def _first_host(self) -> WatchedHost:
        """The host of worker 0."""
        return self._hosts[self.commands[0].host.name]

    def _ask_running(self, ask: Callable[[WatchedHost], None]) -> None:
        """Asks all hosts at once whose torchrun runs."""
        running = [host for host in self._hosts.values() if host.state == HostState.RUNNING]
        with ThreadPoolExecutor(max(1, len(running))) as pool:
            list(pool.map(ask, running))

    def _judge_end(self) -> None:
        """Raises SystemExit after a signal, and LockstepError if the training has failed."""
        if self.signals:
            raise SystemExit(128 + self.signals[0])
        if self._first_host.code != 0:
            remedy = f"{RESUME} All that torchrun has said is in {self.output.path}."
            raise LockstepError(self._reason or "The training has not finished.", remedy)
