"""Slurm: a script for sbatch, in which srun starts one task for each worker and server."""

import math
import re
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.jobs.detached import read_log
from lockstep.jobs.job import Job
from lockstep.jobs.judge_run import judge_run
from lockstep.jobs.kind import JobProcess, JobState, Submission
from lockstep.jobs.kinds.local import make_absolute
from lockstep.jobs.programs import ask, call, require_program
from lockstep.jobs.shell_script import record_calls

SAVE_SECONDS = 120
"""How long before the time limit Slurm tells the script, so that the workers can save."""
START_MINUTES = 10
"""What Slurm's time limit has beyond --max-hours."""
FLAG = re.compile(r"^#SBATCH --([a-z-]+)(?:=(\S+))?", re.MULTILINE)
STATES = {
    "PENDING": JobState.WAITING,
    "REQUEUED": JobState.WAITING,
    "SUSPENDED": JobState.WAITING,
    "CONFIGURING": JobState.WAITING,
    "RUNNING": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,
    "COMPLETED": JobState.FINISHED,
    "CANCELLED": JobState.CANCELLED,
}
"""What Slurm's states mean. All others are failures."""
SCRIPT = """#!/bin/bash
{flags}

{secret}
{variables}
# The workers save and stop after TERM. Slurm sends it before it takes the nodes for a more important job, and scancel
# sends it when USR1 says that the time limit is near. This script waits for them.
trap 'scancel --signal=TERM "$SLURM_JOB_ID"' USR1
trap : TERM

srun --kill-on-bad-exit=1 {command} &
step=$!
wait "$step"
code=$?
while kill -0 "$step" 2>/dev/null; do  # a signal ends `wait` early
    wait "$step"
    code=$?
done

# 143: stopped by TERM. 75: stopped by train.max_hours. The run has steps left, so the job waits in the queue again, unless
# somebody has cancelled it.
if [ "$code" = 143 ] || [ "$code" = 75 ]; then
    scontrol --oneliner show job "$SLURM_JOB_ID" | grep -q JobState=RUNNING && scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


class SlurmKind:
    """Prints the script, and follows the job with scontrol, which needs no accounting database."""

    name = "slurm"

    def print_job(self, job: Job) -> str:
        command, config, *settings, option, run = job.train_words
        words = [command, make_absolute(config), *settings, option, make_absolute(run)]
        return SCRIPT.format(
            flags="\n".join(f"#SBATCH --{flag}" for flag in _list_flags(job)),
            secret=_export_secret(job),
            variables=_export_variables(job),
            command=shlex.join([job.python, "-m", "lockstep", *words]),
        )

    def parse(self, text: str) -> list[JobProcess]:
        flags = {key: value or "" for key, value in FLAG.findall(text)}
        batch = _list_batch_variables(flags)
        calls = record_calls(text, ("srun", "scontrol", "scancel"), batch)
        steps = [one for one in calls if one.words[0] == "srun"]
        if len(steps) != 1:
            raise LockstepError("The script does not call srun once.", "Print it again with --print.", code=2)
        program = list(steps[0].words[1:])
        while program and program[0].startswith("-"):
            program.pop(0)
        nodes = _spread_tasks(int(flags["nodes"]), int(flags["ntasks"]))
        return [
            JobProcess(tuple(program), steps[0].variables | _list_task_variables(rank, nodes), node, (f"h{node + 1}",))
            for rank, node in enumerate(nodes)
        ]

    def submit(self, job: Job) -> Submission:
        require_program("sbatch")
        text = self.print_job(job)
        Path(_output_file(job)).parent.mkdir(parents=True, exist_ok=True)
        call(["sbatch", "--test-only"], text)
        number = call(["sbatch", "--parsable"], text).strip().partition(";")[0]
        output = _output_file(job).replace("%j", number)
        return Submission(self.name, job.name, number, make_absolute(job.run), time.time(), {"output": output})

    def read_state(self, submission: Submission) -> JobState:
        answer = ask(["scontrol", "--oneliner", "show", "job", submission.id])
        match = re.search(r"\bJobState=(\w+)", answer or "")
        if match is None:  # it forgets jobs that ended MinJobAge seconds ago
            return judge_run(submission, Path(submission.facts["output"]))
        return STATES.get(match[1], JobState.FAILED)

    def read_logs(self, submission: Submission) -> str:
        return read_log(Path(submission.facts["output"]))

    def cancel(self, submission: Submission) -> None:
        call(["scancel", submission.id])


def _export_secret(job: Job) -> str:
    if job.secret_file is not None:
        return f"# The secret of this job.\nexport LOCKSTEP_SECRET_FILE={shlex.quote(job.secret_file)}"
    return (
        "# A new secret for every start, by which the workers know each other. srun passes it on, not in a command line.\n"
        f"{job.secret_commands}"
    )


def _export_variables(job: Job) -> str:
    lines = ""
    if job.interface is not None:
        lines += f"export GLOO_SOCKET_IFNAME={job.interface} NCCL_SOCKET_IFNAME={job.interface}\n"
    if cores := job.option("cpus-per-task"):
        lines += f"export SRUN_CPUS_PER_TASK={cores}  # since version 22.05 srun does not take it from the job\n"
    return lines


def _output_file(job: Job) -> str:
    folder = Path(make_absolute(job.run)).parent if "://" not in job.run else Path.cwd()
    return str(folder / f"{job.name}-%j.out")


def _list_flags(job: Job) -> list[str]:
    """Returns the options of sbatch, with comments."""
    tasks = job.workers + job.servers
    flags = {
        f"job-name={job.name}": "",
        f"nodes={job.nodes}": "",
        f"ntasks={tasks}": f"{job.workers} workers, {job.servers} servers",
        f"ntasks-per-node={math.ceil(tasks / job.nodes)}": "at most",
        f"output={_output_file(job)}": "",
        "open-mode=append": "a job that was queued again continues the file",
        "requeue": "after a preemption or the failure of a node",
        f"signal=B:USR1@{SAVE_SECONDS}": "seconds before the time limit",
    }
    if job.max_hours is not None:
        flags[f"time={math.ceil(job.max_hours * 60) + START_MINUTES}"] = "minutes"
    own = [f"{key}={value}" for key, value in job.options]
    return [f"{flag:<22} # {comment}" if comment else flag for flag, comment in flags.items()] + own


def _spread_tasks(nodes: int, tasks: int) -> list[int]:
    """Returns the node of every task, as Slurm's block distribution does."""
    least, more = divmod(tasks, nodes)
    return [node for node in range(nodes) for _ in range(least + (node < more))]


def _write_node_list(nodes: int) -> str:
    return "h1" if nodes == 1 else f"h[1-{nodes}]"


def _list_batch_variables(flags: Mapping[str, str]) -> dict[str, str]:
    """What sbatch gives to the script (Slurm 22.05, manual page of sbatch, "OUTPUT ENVIRONMENT VARIABLES")."""
    nodes, tasks = int(flags["nodes"]), int(flags["ntasks"])
    return {
        "SLURM_JOB_ID": "1",
        "SLURM_JOBID": "1",
        "SLURM_JOB_NAME": flags["job-name"],
        "SLURM_JOB_NODELIST": _write_node_list(nodes),
        "SLURM_NODELIST": _write_node_list(nodes),
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_NNODES": str(nodes),
        "SLURM_NTASKS": str(tasks),
        "SLURM_NPROCS": str(tasks),
        "SLURMD_NODENAME": "h1",
    }


def _list_task_variables(rank: int, nodes: list[int]) -> dict[str, str]:
    """What srun gives to a task (Slurm 22.05, manual page of srun, "OUTPUT ENVIRONMENT VARIABLES")."""
    same = [other for other, node in enumerate(nodes) if node == nodes[rank]]
    per_node = ",".join(str(nodes.count(node)) for node in range(nodes[-1] + 1))
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(same.index(rank)),
        "SLURM_NODEID": str(nodes[rank]),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": _write_node_list(nodes[-1] + 1),
        "SLURM_STEP_NUM_NODES": str(nodes[-1] + 1),
        "SLURM_STEP_NUM_TASKS": str(len(nodes)),
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        "SLURM_TASKS_PER_NODE": per_node,
        "SLURM_GTIDS": ",".join(map(str, same)),
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
        "SLURMD_NODENAME": f"h{nodes[rank] + 1}",
    }
