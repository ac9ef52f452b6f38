"""Makes hosts ready for a launch: connects to them, compares them with each other, and sends what the workers read."""

import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import TypeAdapter

from lockstep.doctor.compare_machines import Examined
from lockstep.doctor.examine import Examination, PlannedLaunch
from lockstep.doctor.finding import Finding, Level
from lockstep.errors import LockstepError
from lockstep.hosts.agent_channel import AgentChannel, OnEvent, make_agent_command
from lockstep.hosts.machine_report import MachineReport
from lockstep.jobs.job import Job
from lockstep.jobs.over_ssh.send_files import Payload, read_payload, send_payload
from lockstep.jobs.over_ssh.torchrun_command import HostCommand, name_interface

END_AFTER_SECONDS = 20.0
"""An agent that hears nothing for so long ends its host's part of the launch: the connection is cut."""
Tell = Callable[[str], None]


def open_channel(job: Job, command: HostCommand, on_event: OnEvent) -> AgentChannel:
    """Starts the agent of a host."""
    return AgentChannel(command.host.name, make_agent_command(command.host, shlex.split(job.ssh), job.python), on_event)


def greet(channel: AgentChannel) -> None:
    """Waits for an agent, and has it end itself if it is cut off. Raises LockstepError."""
    channel.wait_for_hello()
    channel.ask("end after", silence=END_AFTER_SECONDS)


def examine_hosts(
    job: Job, commands: Sequence[HostCommand], channels: Sequence[AgentChannel], tell: Tell
) -> list[Examined]:
    """Examines the hosts as `lockstep doctor` does, without what takes long. Tells what is not as it should be, and raises
    LockstepError if the launch would fail."""
    launch = PlannedLaunch(
        names=tuple(command.host.name for command in commands),
        slots=tuple(command.processes for command in commands),
        addresses=tuple(command.host.public_name for command in commands),
        run=job.run,
        interface=job.interface,
        port=job.port,
        quick=True,
        is_brief=True,
    )

    def tell_finding(finding: Finding) -> None:
        if finding.level in (Level.WARN, Level.SKIP):
            tell(f"{finding.level:<5}{finding.check}: {finding.sentence} {finding.remedy}".rstrip())

    examination = Examination(launch, channels, tell_finding)
    failures = [finding for finding in examination.run() if finding.level == Level.FAIL]
    if failures:
        raise LockstepError(failures[0].sentence, failures[0].remedy)
    return examination.machines


def examine_again(command: HostCommand, channel: AgentChannel, first: Examined, address: str) -> Examined:
    """Examines a host that has come back. Raises LockstepError if it is no longer as the first one."""
    facts = TypeAdapter(MachineReport).validate_python(channel.ask("facts", first=address))
    if (facts.torch, facts.code) != (first.facts.torch, first.facts.code):
        raise LockstepError(
            f"{command.host.name} came back with another version of torch or Lockstep.", "Install the same everywhere."
        )
    return Examined(command.host.name, command.processes, facts)


def find_variables(job: Job, machine: Examined) -> dict[str, str]:
    """Returns the variables that depend on a host: its network and its cores."""
    facts = machine.facts
    variables: dict[str, str] = {}
    if job.interface is None and not facts.named_interface and facts.route is not None:
        variables |= name_interface(facts.route)
    if facts.threads is None:
        cores = min(facts.cores, facts.quota or facts.cores)
        variables["OMP_NUM_THREADS"] = str(max(1, int(cores // machine.slots)))
    return variables


def read_payloads(job: Job) -> list[Payload]:
    """Describes what every host needs. Raises LockstepError if it is not here."""
    return [read_payload(Path(file)) for file in (job.config, *job.files)]


def send_to_all(
    payloads: Sequence[Payload], channels: Sequence[AgentChannel], tell: Tell, check: Callable[[], None]
) -> None:
    """Sends what is missing: to the first host before the others, which may see the same disk."""

    def send(channel: AgentChannel) -> None:
        for payload in payloads:
            send_payload(channel, payload, tell, check)

    first, *others = channels
    send(first)
    with ThreadPoolExecutor(max(1, len(others))) as pool:
        list(pool.map(send, others))
