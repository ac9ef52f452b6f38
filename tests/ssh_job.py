"""Runs a job over ssh: `python -m ssh_job FACTS`, as JSON."""

import json
import sys

from lockstep.errors import LockstepError
from lockstep.hosts.hosts_file import Host
from lockstep.jobs.job import Job
from lockstep.jobs.kinds.ssh import SshKind
from lockstep.notices import print_error

facts = json.loads(sys.argv[1])
hosts = tuple(Host(**host) for host in facts.pop("hosts"))
lists = {name: tuple(facts.pop(name)) for name in ("settings", "files", "ssh")}
job = Job(**facts, **lists, hosts=hosts, nodes=len(hosts), workers_per_node=hosts[0].slots)
try:
    SshKind().submit(job)
except LockstepError as error:
    print_error(error)
    sys.exit(error.code)
