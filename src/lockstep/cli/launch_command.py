"""`lockstep launch`."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lockstep.config import RunConfig
    from lockstep.hosts.hosts_file import Host
    from lockstep.jobs.job import Job
    from lockstep.jobs.kind import Kind
    from lockstep.jobs.registry import KindFacts

PRETENDED_STEPS = 20
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
CONTAINER_RUNS = "/runs"


def launch(
    config: Annotated[list[str], typer.Argument(help="A config file, then settings to change, as `train.steps=2000`.")],
    on: Annotated[
        str, typer.Option(help="The kind of cluster: local, ssh, mpi, slurm, kubernetes, sky or vertex.")
    ] = "local",
    hosts: Annotated[
        str | None,
        typer.Option(help="For ssh and mpi: a hosts file with lines such as `node1 slots=2`, or node1:2,node2:2."),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Machines with workers. Default: those of --hosts, else 1.")
    ] = None,
    workers_per_node: Annotated[
        int | None, typer.Option(min=1, help="Default: slots of --hosts, else one per GPU, else 1.")
    ] = None,
    servers: Annotated[
        int | None, typer.Option(min=0, help="Additional parameter servers, for strategy.name=server.")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(help="Run folder on the machines, or address. Default: runs/NAME, in containers /runs/NAME."),
    ] = None,
    image: Annotated[str | None, typer.Option(help="The container image with Lockstep.")] = None,
    max_hours: Annotated[
        float | None, typer.Option(min=0.01, help="The training saves and stops in time; the platform's limit follows.")
    ] = None,
    interface: Annotated[str | None, typer.Option(help="The network interface of the workers, such as eth0.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port of the rendezvous.")] = 29400,
    own: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="KEY=VALUE", help="An option of this kind of cluster, as partition=gpu."),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="On Kubernetes: an Indexed Job in place of Kubeflow's TrainJob.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the job. Default: that of the config, and the time.")
    ] = None,
    ssh: Annotated[str, typer.Option(help="The ssh command, with options.")] = "ssh",
    python: Annotated[
        str | None, typer.Option(help="The Python with Lockstep on the machines. Default: the same path as here.")
    ] = None,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the exact script, manifest or command. Nothing is started.")
    ] = False,
    pretends: Annotated[
        bool,
        typer.Option(
            "--pretend",
            help="Run the printed text here, for 20 steps unless you set train.steps, with the variables that the platform "
            "would set.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train on a cluster: over ssh or mpirun, in Slurm, on Kubernetes, on any cloud by SkyPilot, on Vertex AI.

    --print shows what would be handed over, and --pretend tries that text on this machine first. `lockstep jobs` follows
    what was launched.

    `lockstep launch my.yaml --on slurm --nodes 4 --max-hours 8 --run /shared/runs/first`
    """
    from lockstep.cli.common import prepare_corpus
    from lockstep.errors import LockstepError
    from lockstep.jobs.job_record import check_is_new, make_name
    from lockstep.jobs.registry import find_kind, read_options

    facts = find_kind(on)
    if print_only and pretends:
        raise LockstepError("--print and --pretend exclude each other.", "Choose one.", code=2)
    if plain and on != "kubernetes":
        raise LockstepError(f"--plain is not for --on {on}.", "Leave it out.", code=2)
    options = read_options(on, [*(own or []), *["plain=yes"] * plain])
    if not config or "=" in config[0]:
        raise LockstepError("No config file was given.", "For example: lockstep launch my.yaml --on slurm", code=2)
    place = run or default_run(config[0], facts)
    settings = _read_settings(config, servers, None if facts.has_containers else place)
    if name is not None and not NAME.fullmatch(name):
        remedy = "Use at most 40 lower-case letters, digits and hyphens, and begin with a letter."
        raise LockstepError(f"{name!r} cannot be the name of a job.", remedy, code=2)
    job = _describe_job(config, settings, on, facts, hosts, nodes, workers_per_node, place, dict(options))
    job = replace(
        job,
        name=name or make_name(Path(config[0]).stem),
        image=image,
        max_hours=max_hours,
        interface=interface,
        port=port,
        python=python or ("python" if facts.has_containers else sys.executable),
        ssh=ssh,
        options=options,
        secret_file=None if facts.has_containers else _name_secret_file(),
    )
    kind = facts.load()
    if print_only:
        _print_text(kind, job, as_json)
    elif pretends:
        _pretend(kind, facts, shorten(job, facts), as_json)
    else:
        check_is_new(job.name)
        if facts.stays and job.files and settings.task_name == "translation":
            prepare_corpus(settings, says_removed=True)
        _submit(kind, job, as_json, facts.stays)


def _find_files(settings: "RunConfig") -> tuple[str, ...]:
    """Returns what the workers read on this machine, besides the config."""
    from lockstep.data.corpus.prepare import corpus_folder
    from lockstep.remote.place import is_remote

    data = settings.data
    if settings.task_name == "translation":
        return () if is_remote(data.corpus) or is_remote(data.folder) else (str(corpus_folder(data)),)
    return () if data.images is None or is_remote(data.images) else (str(data.images),)


def default_run(config: str, facts: "KindFacts") -> str:
    return f"{CONTAINER_RUNS if facts.has_containers else 'runs'}/{Path(config).stem}"


def _read_settings(words: list[str], servers: int | None, run: str | None) -> "RunConfig":
    from lockstep.cli.common import read_config
    from lockstep.errors import LockstepError

    settings = read_config(words, run)
    if settings.strategy.name == "server":
        return settings if servers is None else read_config([*words, f"strategy.servers={servers}"], run)
    if servers:
        remedy = "Leave it out, or set strategy.name=server."
        raise LockstepError(f"--servers is not for strategy.name={settings.strategy.name}.", remedy, code=2)
    return settings


def _name_secret_file() -> str | None:
    from lockstep.run import environment_variables

    path = environment_variables.secret_file()
    return None if path is None else str(path.absolute())


def _describe_job(
    words: list[str],
    settings: "RunConfig",
    on: str,
    facts: "KindFacts",
    hosts: str | None,
    nodes: int | None,
    workers_per_node: int | None,
    run: str,
    options: dict[str, str],
) -> "Job":
    """Returns the job as far as the config and the machines decide it; `launch` adds what only its options say."""
    from lockstep.cli.train_command import choose_workers
    from lockstep.jobs.job import Job

    places = _read_hosts(on, facts, hosts, nodes, workers_per_node)
    servers = settings.strategy.servers if settings.strategy.name == "server" else 0
    gpus = options.get("gpus", "")
    if workers_per_node is None and on == "local":
        workers_per_node = settings.train.workers or choose_workers(settings, run)
    own = [word for word in words[1:] if not word.startswith("strategy.servers=")]
    return Job(
        name="",
        config=words[0],
        settings=(*own, f"strategy.servers={servers}") if settings.strategy.name == "server" else tuple(own),
        run=run,
        nodes=len(places) or nodes or 1,
        workers_per_node=workers_per_node or (int(gpus) if gpus.isdecimal() and int(gpus) else 1),
        servers=servers,
        hosts=places,
        restarts=settings.train.restarts,
        files=_find_files(settings),
    )


def _read_hosts(
    on: str, facts: "KindFacts", hosts: str | None, nodes: int | None, slots: int | None
) -> "tuple[Host, ...]":
    from lockstep.errors import LockstepError
    from lockstep.hosts.hosts_file import read_hosts

    if hosts is None:
        if facts.uses_hosts:
            raise LockstepError(f"--on {on} needs machines.", "Add --hosts node1:2,node2:2 or a hosts file.", code=2)
        return ()
    if not facts.uses_hosts:
        raise LockstepError(f"--hosts is not for --on {on}.", "Its machines are chosen by --nodes.", code=2)
    places = read_hosts(hosts)
    if nodes is not None and nodes > len(places):
        raise LockstepError(f"--nodes is {nodes}, and {hosts} names {len(places)} hosts.", "Add hosts.", code=2)
    return tuple(place if slots is None else replace(place, slots=slots) for place in places[:nodes])


def shorten(job: "Job", facts: "KindFacts") -> "Job":
    """Returns the job for --pretend: another run folder, and few steps unless the user chose their number."""
    steps = () if any(word.startswith("train.steps=") for word in job.settings) else (f"train.steps={PRETENDED_STEPS}",)
    below = "" if facts.has_containers or "://" in job.run else "/run"  # beside the other files of the trial
    return replace(job, settings=(*job.settings, *steps), run=f"{job.run.rstrip('/')}-pretend{below}")


def _print_text(kind: "Kind", job: "Job", as_json: bool) -> None:
    from lockstep.cli.common import print_json

    text = kind.print_job(job)
    if as_json:
        print_json({"kind": kind.name, "name": job.name, "text": text})
    else:
        sys.stdout.write(text)


def _submit(kind: "Kind", job: "Job", as_json: bool, stays: bool) -> None:
    from dataclasses import asdict

    from lockstep.cli.common import print_json, print_text
    from lockstep.jobs.job_record import remember

    submission = kind.submit(job)
    if stays:
        return
    remember(submission)
    if as_json:
        print_json(asdict(submission))
        return
    print_text(
        f"Launched {submission.name} on {kind.name} ({submission.id}).",
        f"Follow it: lockstep jobs status {submission.name}, lockstep jobs logs {submission.name}.",
    )


def _pretend(kind: "Kind", facts: "KindFacts", job: "Job", as_json: bool) -> None:
    from lockstep.cli.common import print_json, print_text
    from lockstep.jobs.pretend import can_emulate, make_trial_folder, pretend
    from lockstep.notices import warn

    processes = kind.parse(kind.print_job(job))
    folder, run = make_trial_folder(job.run, processes)
    emulates = can_emulate() and kind.name != "local"
    nodes = 1 + max(process.node for process in processes)
    where = f"{nodes} emulated host{'s' * (nodes != 1)}" if emulates else "this machine, without emulated hosts"
    warn(f"Trying the printed text on {where}: {len(processes)} processes are started. The run is {run}.")
    pretend(processes, folder, lambda: None, emulates)
    result = _read_result(run)
    sentence = (
        f"The printed text works: its command, arguments and variables were run on {where} with what the platform injects, "
        f"and {result['steps']} steps were trained, to a loss of {result['loss']}. {facts.untried}"
    )
    if as_json:
        print_json(
            {"kind": kind.name, "run": run, "hosts": nodes, "emulated": emulates, **result, "sentence": sentence}
        )
    else:
        print_text(sentence)


def _read_result(run: str) -> dict[str, int | float | None]:
    from lockstep.explain.summary import summarise
    from lockstep.remote.place import working_folder

    summary = summarise(working_folder(run))
    loss = None if summary.loss is None else round(summary.loss, 4)
    return {"steps": summary.step, "loss": loss, "workers": summary.workers}
