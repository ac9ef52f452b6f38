"""`lockstep doctor`."""

import json
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from lockstep.doctor.examine import PlannedLaunch
    from lockstep.doctor.finding import Finding
    from lockstep.hosts.hosts_file import Host

STYLES = {"pass": "green", "skip": "dim", "warn": "yellow", "fail": "bold red"}
LEAST_WIDTH = 11


def doctor(
    config: Annotated[
        list[str] | None, typer.Argument(help="A config file, then settings to change: its corpus is compared, too.")
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            help="A hosts file with lines such as `node1 slots=2 port=4444`, or a list such as node1:2,node2:2. The first "
            "host is that of the first worker. Default: this machine only."
        ),
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="Run folder or address that will be used. Default: runs/NAME.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Workers on this machine, or on each host without slots=.")
    ] = None,
    interface: Annotated[
        str | None, typer.Option(help="The network interface that workers shall use, such as eth0.")
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port of the rendezvous on the first host.")] = 29400,
    ssh: Annotated[str, typer.Option(help="The ssh command, with options.")] = "ssh",
    python: Annotated[
        str | None, typer.Option(help="The Python with Lockstep on the hosts. Default: the same path as here.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out what takes longer than a few seconds.")] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Try the GPUs of this machine instead: about ten minutes of short trainings.")
    ] = False,
    device: Annotated[
        Literal["cuda", "cpu"], typer.Option(help="With --gpu: cpu tries the check itself, on a machine without GPUs.")
    ] = "cuda",
    out: Annotated[str, typer.Option(help="With --gpu: the folder for the page and the JSON.")] = "gpu-check",
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at the machines before a training costs anything: versions, clocks, network, disks, cores, corpus.

    With --hosts it connects to every machine by ssh and tries every connection that the workers would need, in both
    directions. The exit code is 1 if something would keep a training from working well, otherwise 0.

    `lockstep doctor my.yaml --hosts node1:2,node2:2 --run /shared/runs/first`
    """
    if gpu:
        from lockstep.cli.try_gpus import check_gpus

        check_gpus(device, out, as_json)
        return
    from lockstep.doctor.examine import Examination
    from lockstep.errors import LockstepError
    from lockstep.hosts.agent_channel import open_channels
    from lockstep.hosts.hosts_file import read_hosts

    places = None if hosts is None else read_hosts(hosts)
    if places is not None and workers is not None:
        places = [_fill_in_slots(place, workers) for place in places]
    launch = _describe_launch(config or [], places, run, workers, interface, port, quick)
    tell = (lambda finding: None) if as_json else _print_finding
    environment = _examine_environment()
    tell(environment)
    with ExitStack() as stack:
        program = python or sys.executable
        channels = open_channels([None] if places is None else places, shlex.split(ssh), program)
        for channel in channels:
            stack.callback(channel.close)
        findings: list[Finding] = []
        for channel in channels:
            try:
                channel.wait_for_hello()
            except LockstepError as error:
                findings.append(_describe_lost(channel.name, error))
                tell(findings[-1])
        if not findings:
            findings = Examination(launch, channels, tell).run()
    _finish([environment, *findings], as_json)


def _examine_environment() -> "Finding":
    """Says which engine has started this process, as `lockstep train` would recognize it."""
    from lockstep.doctor.finding import Finding, Level, passed
    from lockstep.errors import LockstepError
    from lockstep.launch.engine import find_placement

    try:
        placement = find_placement()
    except LockstepError as error:
        return Finding(Level.FAIL, "environment", "", error.message, error.remedy)
    if placement is None:
        return passed("environment", "No engine has started this process: `lockstep train` starts its workers itself.")
    return passed("environment", placement.describe())


def _fill_in_slots(host: "Host", workers: int) -> "Host":
    from dataclasses import replace

    return replace(host, slots=workers) if host.slots == 1 else host


def _describe_lost(name: str, error: Exception) -> "Finding":
    from lockstep.doctor.finding import Finding, Level
    from lockstep.errors import LockstepError

    assert isinstance(error, LockstepError)
    return Finding(Level.FAIL, "machine", name, error.message, error.remedy)


def _describe_launch(
    words: list[str],
    hosts: "list[Host] | None",
    run: str | None,
    workers: int | None,
    interface: str | None,
    port: int,
    quick: bool,
) -> "PlannedLaunch":
    from lockstep.doctor.examine import PlannedLaunch

    corpus = None
    if words:
        from lockstep.cli.common import read_config
        from lockstep.data.corpus.prepare import corpus_folder

        settings = read_config(words, run)
        if settings.task_name == "translation":
            corpus = str(Path(corpus_folder(settings.data)).absolute())
        run = run or str(Path("runs") / Path(words[0]).stem)
    run = run or "runs"
    return PlannedLaunch(
        names=("this machine",) if hosts is None else tuple(host.name for host in hosts),
        slots=(workers or 1,) if hosts is None else tuple(host.slots for host in hosts),
        addresses=("localhost",) if hosts is None else tuple(host.public_name for host in hosts),
        run=run if "://" in run else str(Path(run).expanduser().absolute()),
        corpus=corpus,
        interface=interface,
        port=port,
        quick=quick,
    )


def _print_finding(finding: "Finding") -> None:
    from rich.text import Text

    from lockstep.safe_console import SafeConsole

    console = SafeConsole(highlight=False)
    head = Text.assemble((f"{finding.level:<5}", STYLES[finding.level]), f"{finding.check:<{LEAST_WIDTH}} ")
    text = finding.sentence if not finding.remedy else f"{finding.sentence} {finding.remedy}"
    indent = len(head.plain)
    for number, line in enumerate(Text(text).wrap(console, max(30, console.width - indent))):
        console.print(Text.assemble(head if number == 0 else " " * indent, line))


def _finish(findings: "list[Finding]", as_json: bool) -> None:
    from lockstep.doctor.finding import Level

    counts = {level: sum(finding.level == level for finding in findings) for level in Level}
    if as_json:
        facts = [
            {"level": str(one.level), "check": one.check, "host": one.host, "what": one.sentence, "remedy": one.remedy}
            for one in findings
        ]
        print(
            json.dumps({"findings": facts, "counts": {str(level): count for level, count in counts.items()}}, indent=1)
        )
    else:
        print(f"\n{', '.join(f'{count} {level}' for level, count in counts.items() if count)}.")
    if counts[Level.FAIL]:
        raise typer.Exit(1)
