"""The fork server's own program: `python -m lockstep.launch.fork_loop DESCRIPTOR MODULE ARGUMENTS...`.

It calls the module's `preload`, then forks a process for every request on the pipe and reports when each one ends. It
computes nothing, because a process with threads cannot be forked safely. If an import has started a thread all the same,
each process starts a new Python instead: `python -m lockstep.launch.fork_loop run MODULE ARGUMENTS...`.
"""

import gc
import os
import select
import signal
import sys
import time
from collections.abc import Iterable
from importlib import import_module
from multiprocessing.connection import Connection
from typing import NoReturn

from lockstep.launch.fork_server import Exited, SignalRequest, Started, StartRequest
from lockstep.notices import print_error
from lockstep.process import die_with_parent, run_then_exit
from lockstep.run import environment_variables


def main() -> None:
    descriptor, module, *arguments = sys.argv[1:]
    if descriptor == "run":
        run(module, arguments)
    die_with_parent(environment_variables.launcher_pid())
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()
    import_module(module).preload(*arguments)
    gc.freeze()  # the collector of a forked process leaves alone, and so does not copy, what is shared
    serve(Connection(int(descriptor)))


def serve(pipe: "Connection[Started | Exited, StartRequest | SignalRequest]") -> None:
    """Handles requests until the launcher closes the pipe."""
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    signal.set_wakeup_fd(wakeup_write)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # without a handler nothing is written to the pipe
    numbers: dict[int, int] = {}  # by process id
    while True:
        readable, _, _ = select.select([pipe.fileno(), wakeup_read], [], [])
        if wakeup_read in readable:
            os.read(wakeup_read, 4096)
            for pid, exit_code in _reap():
                pipe.send(Exited(numbers.pop(pid), exit_code))
        if pipe.fileno() in readable:
            try:
                request = pipe.recv()
            except EOFError:
                return
            if isinstance(request, StartRequest):
                server, has_threads = os.getpid(), len(os.listdir("/proc/self/task")) > 1
                pid = os.fork()
                if pid == 0:
                    die_with_parent(server)
                    signal.set_wakeup_fd(-1)
                    os.close(wakeup_read)
                    os.close(wakeup_write)
                    pipe.close()
                    _become(request, has_threads)
                numbers[pid] = request.number
                pipe.send(Started(request.number, pid))
            else:
                for pid, number in numbers.items():
                    if number == request.number:
                        os.kill(pid, request.signal)


def _become(request: StartRequest, has_threads: bool) -> NoReturn:
    """Turns this forked process into the requested one."""
    os.setsid()
    os.environ.update(request.environment)
    time.sleep(request.delay_seconds)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module, arguments = request.target
    if has_threads:
        os.execv(sys.executable, [sys.executable, "-m", "lockstep.launch.fork_loop", "run", module, *arguments])
    run(module, arguments)


def _reap() -> list[tuple[int, int]]:
    """Returns process id and exit code of all children that have ended."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, os.waitstatus_to_exitcode(status)))


def run(module: str, arguments: Iterable[str]) -> NoReturn:
    """Calls the module's `main` and ends this process."""
    run_then_exit(lambda: import_module(module).main(*arguments), print_error)


if __name__ == "__main__":
    main()
