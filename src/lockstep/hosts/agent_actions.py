"""What an agent does for a command."""

import time
from collections.abc import Callable

from lockstep.hosts.connections import connect, listen
from lockstep.hosts.disk_speed import look_for_file, measure_disk, remove_file
from lockstep.hosts.machine_report import read_facts
from lockstep.hosts.processor_speed import measure_rate
from lockstep.hosts.received_files import add_part, begin_files, compare_files, finish_files
from lockstep.hosts.store_check import check_store

ACTIONS: dict[str, Callable[..., object]] = {
    "clock": time.time,
    "facts": read_facts,
    "disk": measure_disk,
    "look": look_for_file,
    "remove": remove_file,
    "listen": listen,
    "connect": connect,
    "rate": measure_rate,
    "store": check_store,
    "compare files": compare_files,
    "begin files": begin_files,
    "add part": add_part,
    "finish files": finish_files,
}
