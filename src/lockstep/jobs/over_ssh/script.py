"""The commands of a launch over ssh as a shell script, and what such a script would start."""

import secrets
import shlex
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.hosts.agent_channel import SSH_OPTIONS
from lockstep.hosts.hosts_file import Host
from lockstep.jobs.job import Job
from lockstep.jobs.kind import JobProcess
from lockstep.jobs.over_ssh.torchrun_command import HostCommand, list_ranks, make_absolute, make_commands, name_ranks

SECRET = "secret=$(openssl rand -hex 32)"
START = "printf '%s\\n' \"$secret\" | "
READ_SECRET = "read -r LOCKSTEP_SECRET && export LOCKSTEP_SECRET && exec env"
HEAD = """\
#!/usr/bin/env bash
# Job {name} over ssh: {hosts}.
#
# `lockstep launch --on ssh` starts the same torchrun commands through an agent on each host, which ends everything when
# the connection ends, and which sends files without rsync. If you run this script yourself, end the processes on the hosts
# yourself, too. The agents also set OMP_NUM_THREADS to the cores of each worker and, without --interface,
# GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to the network on the way to {first}.
set -eu

# Only those who know this word can join. It goes through stdin: command lines are public.
{secret}
"""


def print_script(job: Job) -> str:
    """Returns the script of a job."""
    commands, job = make_commands(job), make_absolute(job)
    ranks = list_ranks(commands)
    workers = sum(host.slots for host in job.hosts)
    hosts = ", ".join(f"{command.host.name} ({name_ranks(ranks[command.host.name], workers)})" for command in commands)
    first = commands[0].host.public_name
    parts = [HEAD.format(name=job.name, hosts=hosts, first=first, secret=SECRET)]
    parts.append(
        "# What the workers read. Lockstep sends it where it is absent or different, and checks the digests.\n"
    )
    for command in commands:
        parts += [_print_copy(job, command.host, file) for file in (job.config, *job.files)]
    parts.append("\n# torchrun starts the workers, and starts them again after a death (--max-restarts).\n")
    parts += [_print_start(job, command) for command in commands]
    place = job.run if "://" in job.run else f"{commands[0].host.name}:{job.run}"
    parts.append(f"\nwait  # The run is in {place}\n")
    return "".join(parts)


def _make_ssh(job: Job, host: Host) -> list[str]:
    port = [] if host.port is None else ["-p", str(host.port)]
    return [*shlex.split(job.ssh), *SSH_OPTIONS, *port]


def _print_copy(job: Job, host: Host, file: str) -> str:
    end = "" if Path(file).is_file() else "/"
    words = ["rsync", "-a", "--mkpath", "-e", shlex.join(_make_ssh(job, host)), file + end, f"{host.place}:{file}{end}"]
    return f"{shlex.join(words)}\n"


def _print_start(job: Job, command: HostCommand) -> str:
    variables = [f"{name}={value}" for name, value in command.variables.items()]
    folder = shlex.quote(str(Path.cwd()))
    inside = f"mkdir -p {folder} && cd {folder} && {READ_SECRET} {shlex.join([*variables, *command.words])}"
    words = [*_make_ssh(job, command.host), command.host.place, inside]
    return f"# {command.host.name}\n{START}{shlex.join(words)} &\n"


def parse_script(text: str) -> list[JobProcess]:
    """Returns what the hosts would start: torchrun, once on each. The secret is a new one."""
    secret = secrets.token_hex(32)
    if SECRET not in text.splitlines():
        raise LockstepError("This is no script for a launch over ssh: it makes no secret.", code=2)
    lines = [line for line in text.splitlines() if line.startswith(START)]
    return [_parse_start(line, node, secret) for node, line in enumerate(lines)]


def _parse_start(line: str, node: int, secret: str) -> JobProcess:
    *start, background = shlex.split(line.removeprefix(START))
    inside = start[-1]
    _, reads, command = inside.partition(READ_SECRET)
    if background != "&" or not reads:
        raise LockstepError(
            f"Line of host {node + 1}: it does not read the secret, or does not start anything.", code=2
        )
    words = shlex.split(command)
    count = next(number for number, word in enumerate(words) if "=" not in word)
    variables = dict(word.split("=", 1) for word in words[:count])
    program = words[count:]
    names = (start[-2].rpartition("@")[2], program[program.index("--local-addr") + 1])
    return JobProcess(tuple(program), variables | {"LOCKSTEP_SECRET": secret}, node, tuple(dict.fromkeys(names)))
