"""Processes that mpirun, mpiexec or jsrun has started. None of them says where process 0 is: that is concluded."""

import ipaddress
import re
from pathlib import Path
from typing import NamedTuple

from lockstep.errors import LockstepError
from lockstep.launch.environments.placement import (
    ALONE_REMEDY,
    DEFAULT_PORT,
    LOOPBACK,
    Variables,
    WorkerPlacement,
    check_below,
    derive_port,
    is_loopback,
    read_number,
    read_optional_number,
    read_port,
)
from lockstep.launch.environments.slurm import list_slurm_hosts


class RankNames(NamedTuple):
    """The names that an engine has for the same four numbers."""

    family: str
    rank: str
    size: str
    local_rank: str
    local_size: str


def _name_with(family: str, prefix: str) -> RankNames:
    return RankNames(family, *(f"{prefix}_{what}" for what in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")))


JSRUN = _name_with("jsrun", "JSM_NAMESPACE")
OPEN_MPI = _name_with("Open MPI", "OMPI_COMM_WORLD")
MVAPICH = _name_with("MVAPICH", "MV2_COMM_WORLD")
HYDRA = RankNames("MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
PALS = RankNames("mpiexec", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE")
JOB_NAMES = ("OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID")
"""What all processes of a job have in common, by preference. The first two are new for each mpirun."""


def is_started_by(names: RankNames, variables: Variables) -> bool:
    """Whether the engine with these names has started this process. PMI_RANK alone is not enough: srun sets it, too."""
    needed = {names.rank} if names.rank != "PMI_RANK" else {names.rank, names.local_rank}
    return needed <= set(variables)


def place_mpi_process(names: RankNames, variables: Variables) -> WorkerPlacement:
    """Returns the place of a process of mpirun and its like."""
    rank, size = read_number(variables, names.rank), read_number(variables, names.size)
    local_rank = read_number(variables, names.local_rank)
    local_size = read_optional_number(variables, names.local_size)
    check_below(names.rank, rank, names.size, size)
    if local_size is not None:
        check_below(names.local_rank, local_rank, names.local_size, local_size)
        if local_size > size:
            raise LockstepError(
                f"{names.local_size} is {local_size}, but {names.size} is {size}.", ALONE_REMEDY, code=2
            )
    host, source, *others = _find_first_host(names, variables, local_size == size)
    job = next((variables[name] for name in JOB_NAMES if name in variables), None)
    return WorkerPlacement(
        names.family,
        (names.rank, names.size, names.local_rank, *filter(None, [source])),
        rank,
        size,
        local_rank,
        local_size,
        host,
        read_port(variables, "MASTER_PORT", DEFAULT_PORT if job is None else derive_port(job)),
        is_derived=source not in ("", "MASTER_ADDR"),
        alternatives=tuple(others),
    )


def _find_first_host(names: RankNames, variables: Variables, is_one_host: bool) -> tuple[str, ...]:
    """Returns where process 0 is, or should be, the variable that says so, and other addresses of that host."""
    if "MASTER_ADDR" in variables:
        host = variables["MASTER_ADDR"]
        if is_loopback(host) and names.local_size in variables and not is_one_host:
            raise LockstepError(
                f"MASTER_ADDR is {host}, which is each machine itself, but {names.local_size} is "
                f"{variables[names.local_size]} and {names.size} is {variables[names.size]}: there are other machines.",
                "Set MASTER_ADDR to the first host.",
                code=2,
            )
        return host, "MASTER_ADDR"
    if is_one_host:
        return LOOPBACK, ""
    addresses = list_uri_addresses(variables.get("OMPI_MCA_orte_hnp_uri", ""))
    if addresses:
        return addresses[0], "OMPI_MCA_orte_hnp_uri", *addresses[1:]
    for source, hosts in (list_slurm_hosts(variables), list_lsf_hosts(variables, skip_first=names is JSRUN)):
        if hosts:
            return hosts[0], source
    raise LockstepError(
        f"{names.family} started processes on several machines, but MASTER_ADDR does not say where the first one is.",
        "Name it in the command that starts them (mpirun of Open MPI: -x MASTER_ADDR=<first host>, mpiexec of MPICH: "
        "-genv MASTER_ADDR <first host>).",
        code=2,
    )


def list_uri_addresses(uri: str) -> list[str]:
    """Returns the addresses of `job;tcp://10.0.0.1,10.1.0.1:50027;tcp6://[fd00::2]:51891`, those of IPv4 first, without
    loopback."""
    versions: dict[int, list[str]] = {4: [], 6: []}
    for hosts in re.findall(r"tcp6?://(.+):\d+$", uri.replace(";", "\n"), re.MULTILINE):
        for text in hosts.strip("[]").split(","):
            try:
                address = ipaddress.ip_address(text.strip("[]"))
            except ValueError:
                continue
            if not address.is_loopback:
                versions[address.version].append(str(address))
    return versions[4] + versions[6]


def list_lsf_hosts(variables: Variables, skip_first: bool) -> tuple[str, list[str]]:
    """Returns the variable with the hosts of an LSF job, and the hosts. jsrun starts nothing on the first one, where the
    job's script runs, if there are others."""
    sources = {
        "LSB_DJOB_RANKFILE": _read_words(variables.get("LSB_DJOB_RANKFILE")),
        "LSB_MCPU_HOSTS": variables.get("LSB_MCPU_HOSTS", "").split()[::2],  # each with its number of slots
        "LSB_HOSTS": variables.get("LSB_HOSTS", "").split(),
    }
    source, hosts = next(((name, hosts) for name, hosts in sources.items() if hosts), ("", []))
    others = [host for host in hosts if host != hosts[0]]
    return source, others if skip_first and others else hosts


def _read_words(path: str | None) -> list[str]:
    """Returns the words of a file; none if it cannot be read."""
    try:
        return [] if path is None else Path(path).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []


def refuse_bare_rank(variables: Variables) -> None:
    """Refuses processes of a launcher that does not say enough: a world of one would follow."""
    for name in ("PMIX_RANK", "PMI_RANK"):
        if name in variables:
            lacks = "PMI_SIZE" if name == "PMI_RANK" and "PMI_SIZE" not in variables else "MPI_LOCALRANKID"
            what = "how many processes there are" if name == "PMIX_RANK" else f"what {lacks} would"
            raise LockstepError(
                f"{name} says that this is process {variables[name]} of a job, but nothing says {what}.",
                "Start with mpirun or srun, or set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. "
                "LOCKSTEP_ENVIRONMENT=none trains on this machine only.",
                code=2,
            )
