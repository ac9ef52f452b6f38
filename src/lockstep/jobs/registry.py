"""All kinds of clusters, with their own options and what `pretend` leaves out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lockstep.errors import LockstepError
from lockstep.jobs.kind import Kind


def _load_local() -> Kind:
    from lockstep.jobs.kinds.local import LocalKind

    return LocalKind()


def _load_ssh() -> Kind:
    from lockstep.jobs.kinds.ssh import SshKind

    return SshKind()


def _load_mpi() -> Kind:
    from lockstep.jobs.kinds.mpirun import MpiKind

    return MpiKind()


def _load_slurm() -> Kind:
    from lockstep.jobs.kinds.sbatch import SlurmKind

    return SlurmKind()


def _load_kubernetes() -> Kind:
    from lockstep.jobs.kinds.kubernetes import KubernetesKind

    return KubernetesKind()


def _load_sky() -> Kind:
    from lockstep.jobs.kinds.sky import SkyKind

    return SkyKind()


def _load_vertex() -> Kind:
    from lockstep.jobs.kinds.vertex_ai import VertexKind

    return VertexKind()


@dataclass(frozen=True)
class KindFacts:
    """What a user should know about a kind of cluster."""

    load: Callable[[], Kind]
    untried: str  # what a pretence cannot try
    options: Mapping[str, str] = field(default_factory=dict)  # of --with, each with its meaning
    takes_any_option: bool = False
    uses_hosts: bool = False  # does the user name machines?
    stays: bool = False  # does the command stay until the job ends, and show what it prints?
    has_containers: bool = False  # or machines that are made for the job: paths are those in there


GPUS = "GPUs of a node; also the default of --workers-per-node"
KINDS: dict[str, KindFacts] = {
    "local": KindFacts(_load_local, "Nothing was left out."),
    "ssh": KindFacts(
        _load_ssh,
        "Not tried: ssh, and the machines themselves.",
        {"least-nodes": "with so many hosts the training continues while others are lost; default: all"},
        uses_hosts=True,
        stays=True,
    ),
    "mpi": KindFacts(_load_mpi, "Not tried: mpirun itself, ssh, and the machines.", uses_hosts=True),
    "slurm": KindFacts(
        _load_slurm,
        "Not tried: the queue, its limits, and the file system of the cluster.",
        {"partition": "or any other long option of sbatch"},
        takes_any_option=True,
    ),
    "kubernetes": KindFacts(
        _load_kubernetes,
        "Not tried: the image, the volume and the Secret (a folder and a made-up text took their places), scheduling, and "
        "the network of the cluster.",
        {
            "claim": "the volume claim in which the run is, if --run is a folder",
            "cpu": "CPUs that a pod requests",
            "memory": "memory that a pod requests, as 8Gi",
            "gpus": GPUS,
            "runtime": "the training runtime; default: torch-distributed",
            "store-secret": "the Secret with the credentials of the object store",
            "plain": "yes: an Indexed Job in place of a TrainJob, as --plain",
        },
        has_containers=True,
    ),
    "sky": KindFacts(
        _load_sky,
        "Not tried: the image, `setup`, the bucket (a folder took its place), and the cloud.",
        {
            "infra": "cloud, region and zone, as aws/us-east-1",
            "accelerators": "as A100:4",
            "cpus": "as 8+",
            "memory": "in GB, as 32+",
            "instance_type": "as m6i.2xlarge",
            "disk_size": "in GB",
            "bucket": "where the run is, if --run is a folder: s3://..., gs://...",
            "spot": "no: machines that are not taken away",
            "install": "what pip installs on the machines, where there is no --image",
            "gpus": GPUS,
        },
        has_containers=True,
    ),
    "vertex": KindFacts(
        _load_vertex,
        "Not tried: the image, the bucket (a folder took its place), permissions, and the network of the platform.",
        {
            "bucket": "where the job's secret is",
            "region": "as europe-west4",
            "machine-type": "of workers, as n1-standard-8",
            "server-machine-type": "of parameter servers",
            "accelerator": "as NVIDIA_TESLA_V100, one for each worker",
            "service-account": "the account under which the job runs",
            "spot": "yes: cheap machines that may be taken away",
        },
        has_containers=True,
    ),
}


def find_kind(name: str) -> KindFacts:
    """Returns the kind of that name."""
    if name not in KINDS:
        raise LockstepError(f"There is no kind of cluster {name!r}.", f"Choose one of {', '.join(KINDS)}.", code=2)
    return KINDS[name]


def read_options(kind: str, words: list[str]) -> tuple[tuple[str, str], ...]:
    """Returns the options of --with, `key=value`."""
    facts = find_kind(kind)
    known = ", ".join(f"{key} ({meaning})" for key, meaning in facts.options.items()) or "it has none"
    pairs = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value or not key.replace("-", "").replace("_", "").isalnum() or value.split() != [value]:
            raise LockstepError(f"--with {word} is not understood.", "Write it as --with key=value.", code=2)
        if key not in facts.options and not facts.takes_any_option:
            raise LockstepError(f"--on {kind} has no option {key}.", f"Its options: {known}.", code=2)
        pairs.append((key, value))
    return tuple(pairs)
