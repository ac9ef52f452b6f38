"""What is to be trained, and on how many machines: the same description for every kind of cluster."""

from dataclasses import dataclass

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
    least_nodes: int | None = None  # with fewer than `nodes` the others continue, down to this number
    files: tuple[str, ...] = ()  # files and folders of this machine that the workers read: the corpus
    ssh: tuple[str, ...] = ("ssh",)  # the command that reaches a machine

    @property
    def workers(self) -> int:
        return self.nodes * self.workers_per_node

    @property
    def train_words(self) -> list[str]:
        """What follows `lockstep` in the command of every worker."""
        limit = [] if self.max_hours is None else [f"train.max_hours={self.max_hours:g}"]
        return ["train", self.config, *self.settings, *limit, "--run", self.run]
