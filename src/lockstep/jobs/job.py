"""What is to be trained, and on how many machines: the same description for every kind of cluster."""

import shlex
from dataclasses import dataclass

from lockstep.errors import LockstepError
from lockstep.hosts.hosts_file import Host

PORT = 29400
"""Of the rendezvous, on the machine of the first worker, unless the user names another one."""


@dataclass(frozen=True)
class Job:
    """A training that somebody wants to launch."""

    name: str  # letters, digits and hyphens: every platform takes it
    config: str  # path of the config file
    settings: tuple[str, ...]  # as `train.steps=2000`
    run: str  # folder or address
    nodes: int
    workers_per_node: int
    servers: int = 0  # processes beyond the workers, for strategy.name=server
    hosts: tuple[Host, ...] = ()  # where the user names machines
    interface: str | None = None  # of the network
    port: int = PORT
    image: str | None = None  # of containers
    max_hours: float | None = None
    python: str = "python"  # the interpreter on the machines
    restarts: int = 0  # how often all workers may start again after a death
    files: tuple[
        str, ...
    ] = ()  # files and folders of this machine that the workers read, besides the config: the corpus
    ssh: str = "ssh"  # the command, with its options
    secret_file: str | None = None  # on the machines, if the user has one; else the kind makes a secret
    options: tuple[tuple[str, str], ...] = ()  # of this kind of cluster only, as ("partition", "gpu")

    @property
    def workers(self) -> int:
        return sum(host.slots for host in self.hosts) if self.hosts else self.nodes * self.workers_per_node

    @property
    def train_words(self) -> list[str]:
        """What follows `lockstep` in the command of every worker."""
        limit = [] if self.max_hours is None else [f"train.max_hours={self.max_hours:g}"]
        return ["train", self.config, *self.settings, *limit, "--run", self.run]

    @property
    def secret_commands(self) -> str:
        """Lines of a shell script that make a new random secret. openssl may be missing on a machine, Python is not."""
        program = "import secrets; print(secrets.token_hex(32))"
        return f"LOCKSTEP_SECRET=\"$({shlex.quote(self.python)} -c '{program}')\" || exit\nexport LOCKSTEP_SECRET"

    def option(self, name: str) -> str | None:
        """Returns an option of this kind of cluster; None where the user did not give it."""
        return dict(self.options).get(name)

    def require_option(self, name: str, what: str) -> str:
        value = self.option(name)
        if value is None:
            raise LockstepError(f"{what} is missing.", f"Add --with {name}=...", code=2)
        return value

    def require_image(self) -> str:
        if self.image is None:
            raise LockstepError(
                "The job runs in containers, and --image is missing.",
                "Build one with docker/Dockerfile, push it to your registry, and name it: --image REGISTRY/lockstep:TAG.",
                code=2,
            )
        return self.image

    def count_equal_nodes(self) -> int:
        """Returns the number of nodes where every node starts as many processes. Servers have the last ranks."""
        if self.servers % self.workers_per_node:
            raise LockstepError(
                f"{self.servers} servers do not fill nodes with {self.workers_per_node} processes each.",
                "This platform starts equally many processes on every node: let --servers be a multiple of "
                "--workers-per-node.",
                code=2,
            )
        return self.nodes + self.servers // self.workers_per_node
