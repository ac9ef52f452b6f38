"""mpirun of Open MPI, over ssh: one process for each worker and server."""

import os
import shlex
from collections.abc import Mapping, Sequence

from lockstep.errors import LockstepError
from lockstep.hosts.hosts_file import Host, read_hosts
from lockstep.jobs.detached import end_detached, read_detached_logs, read_detached_state, start_detached
from lockstep.jobs.job import Job
from lockstep.jobs.kind import JobProcess, JobState, Submission
from lockstep.jobs.kinds.local import make_absolute
from lockstep.jobs.programs import require_program
from lockstep.jobs.shell_script import Call, record_calls
from lockstep.run import environment_variables

VALUES = {"-n": 1, "-np": 1, "-H": 1, "--host": 1, "-x": 1, "--mca": 2, "--bind-to": 1, "--wdir": 1}
"""The options that have values, and how many."""


class MpiKind:
    """Prints a script with the mpirun command."""

    name = "mpi"

    def print_job(self, job: Job) -> str:
        if not job.hosts:
            raise LockstepError("--on mpi needs machines.", "Add --hosts node1:2,node2:2 or a hosts file.", code=2)
        if not all(host.user in (None, job.hosts[0].user) for host in job.hosts):
            raise LockstepError("mpirun takes one user for all hosts.", "Write the users into ~/.ssh/config.", code=2)
        lines = [
            *_set_secret(job),
            "# -x: variables of the workers. --bind-to none: a worker may use all cores of its machine.",
            f"exec mpirun {_join_lines(_list_options(job))} \\",
            f"    {shlex.join([job.python, '-m', 'lockstep', *_list_train_words(job)])}",
        ]
        return "\n".join([f"# {job.workers} workers on {len(job.hosts)} machines, by ssh.", *lines]) + "\n"

    def parse(self, text: str) -> list[JobProcess]:
        calls = record_calls(text, ("mpirun",), {})
        if len(calls) != 1:
            raise LockstepError("The script does not call mpirun once.", "Print it again with --print.", code=2)
        return spread_processes(calls[0])

    def submit(self, job: Job) -> Submission:
        require_program("mpirun")
        return start_detached(self.name, job, self.print_job(job))

    def read_state(self, submission: Submission) -> JobState:
        return read_detached_state(submission)

    def read_logs(self, submission: Submission) -> str:
        return read_detached_logs(submission)

    def cancel(self, submission: Submission) -> None:
        end_detached(submission)


def _set_secret(job: Job) -> list[str]:
    if job.secret_file is not None:
        return ["# The secret of this job: a file that every machine has at this path.", *_export_file(job.secret_file)]
    return [
        "# The secret of this job. mpirun passes it on through its own connections, not in a command line.",
        job.secret_commands,
    ]


def _export_file(path: str) -> list[str]:
    return [f"export LOCKSTEP_SECRET_FILE={shlex.quote(path)}"]


def _list_train_words(job: Job) -> list[str]:
    command, config, *settings, option, run = job.train_words
    return [command, make_absolute(config), *settings, option, make_absolute(run)]


def _list_options(job: Job) -> list[list[str]]:
    """Returns mpirun's options, each with its values."""
    *others, last = job.hosts
    slots = [f"{host.name}:{host.slots}" for host in others] + [f"{last.name}:{last.slots + job.servers}"]
    options = [["-n", str(job.workers + job.servers), "-H", ",".join(slots)], ["--bind-to", "none"]]
    if os.geteuid() == 0:
        options.append(["--allow-run-as-root"])
    ssh = _choose_ssh(job)
    if ssh != "ssh":
        options.append(["--mca", "plm_rsh_agent", ssh])
    if job.interface is not None:
        options += [["--mca", name, job.interface] for name in ("btl_tcp_if_include", "oob_tcp_if_include")]
        options += [["-x", f"{name}_SOCKET_IFNAME={job.interface}"] for name in ("GLOO", "NCCL")]
    options.append(["-x", f"MASTER_ADDR={job.hosts[0].public_name}", "-x", f"MASTER_PORT={job.port}"])
    secret = "LOCKSTEP_SECRET" if job.secret_file is None else "LOCKSTEP_SECRET_FILE"
    passed = [secret] + ["PYTHONPATH"] * (environment_variables.python_path() is not None)
    return [*options, [word for name in passed for word in ("-x", name)]]


def _choose_ssh(job: Job) -> str:
    """Returns the ssh command, which is the same for all hosts."""
    ports = {host.port for host in job.hosts}
    if len(ports) > 1:
        raise LockstepError(
            "mpirun takes one ssh command for all hosts, and their ports differ.",
            "Write the ports into ~/.ssh/config.",
            code=2,
        )
    port, user = ports.pop(), job.hosts[0].user
    return job.ssh + (f" -p {port}" if port else "") + (f" -l {user}" if user else "")


def _join_lines(options: Sequence[Sequence[str]]) -> str:
    return " \\\n    ".join(shlex.join(words) for words in options)


def spread_processes(call: Call) -> list[JobProcess]:
    """Returns the processes that this mpirun command starts, rank by rank, filling one host after the other."""
    options, program = _split_words(call.words[1:])
    hosts = read_hosts(",".join(options.get("-H", []) + options.get("--host", [])))
    count = int((options.get("-n") or options.get("-np") or [str(sum(host.slots for host in hosts))])[-1])
    nodes = [number for number, host in enumerate(hosts) for _ in range(host.slots)]
    if count > len(nodes):
        raise LockstepError(
            f"mpirun shall start {count} processes, and its hosts have {len(nodes)} slots.",
            "Give the hosts more slots, as node1:4.",
            code=2,
        )
    nodes = nodes[:count]
    given = dict(_read_variable(word, call.variables) for word in options.get("-x", []))
    names = [[host.name] for host in hosts]
    if "MASTER_ADDR" in given:  # another name of the host with rank 0
        names[0].append(given["MASTER_ADDR"])
    return [
        JobProcess(tuple(program), given | _list_injected(rank, nodes, hosts), node, tuple(dict.fromkeys(names[node])))
        for rank, node in enumerate(nodes)
    ]


def _list_injected(rank: int, nodes: Sequence[int], hosts: Sequence[Host]) -> dict[str, str]:
    """The variables that mpirun promises to every process (Open MPI 4.1, manual page of mpirun, and the FAQ "What
    environment variables are there in a process"), and the list of hosts that it passes on besides."""
    same = [other for other, node in enumerate(nodes) if node == nodes[rank]]
    return {
        "OMPI_COMM_WORLD_SIZE": str(len(nodes)),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(same.index(rank)),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(len(same)),
        "OMPI_COMM_WORLD_NODE_RANK": str(same.index(rank)),
        "OMPI_UNIVERSE_SIZE": str(sum(host.slots for host in hosts)),
        "OMPI_MCA_ess_base_jobid": "1",
    }


def _split_words(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the options of mpirun, those that were given several times with all their values, and the program."""
    options: dict[str, list[str]] = {}
    place = 0
    while place < len(words) and words[place].startswith("-"):
        count = VALUES.get(words[place], 0)
        options.setdefault(words[place], []).append(" ".join(words[place + 1 : place + 1 + count]))
        place += 1 + count
    return options, list(words[place:])


def _read_variable(word: str, variables: Mapping[str, str]) -> tuple[str, str]:
    """`-x NAME` passes a variable of mpirun on, `-x NAME=VALUE` sets one."""
    name, equals, value = word.partition("=")
    known = {**variables, **environment_variables.copy_basics()}
    return name, value if equals else known.get(name, "")
