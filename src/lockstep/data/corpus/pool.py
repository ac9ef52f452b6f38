"""Worker processes for preparation: each receives jobs over a pipe, one at a time.

A worker is a new `python -m lockstep.data.corpus.pool`. It shares no locks or threads with its parent, needs no main
guard in the caller's program, imports neither torch nor the command line, and ends when its parent ends, even by SIGKILL.
Results come in the order of the jobs, so they do not depend on the number of processes.
"""

import contextlib
import ctypes
import gc
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from typing import Self, TypeVar

import lockstep
from lockstep.errors import LockstepError
from lockstep.run import environment_variables

Job = TypeVar("Job")
Result = TypeVar("Result")
AHEAD = 2
"""Jobs per process that may wait: enough to keep every process busy, few enough to keep memory small."""


class WorkerEnded(LockstepError):
    """A worker process was killed or crashed. Finished jobs remain valid."""


class Pool:
    """Runs jobs in `processes` worker processes, or in this process if `processes` is 1 or there is only one job.

    Use it in a `with` statement. The workers start when the first `map` needs them; later calls use them again.
    """

    def __init__(self, processes: int | None = None) -> None:
        self.processes = processes or len(os.sched_getaffinity(0))
        self._workers: list[_Worker] = []
        self._idle: SimpleQueue[_Worker] = SimpleQueue()

    def map(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """Yields the results of a module-level function for all jobs, in their order.

        Jobs are taken from the iterator only when a worker can accept them soon. An error in a job, or in the iterator,
        is raised after the results of all earlier jobs.
        """
        remaining = iter(jobs)
        first = list(islice(remaining, 1 if self.processes == 1 else 2))
        if self.processes == 1 or len(first) < 2:
            yield from (function(job) for job in chain(first, remaining))
            return
        self._start(self.processes)
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(self.processes) as threads:
            try:
                failure = None
                for job in _catch_failure(chain(first, remaining)):
                    if isinstance(job, _Failure):
                        failure = job.error
                        break
                    waiting.append(threads.submit(self._call, function, job))
                    if len(waiting) > AHEAD * self.processes:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
                if failure is not None:
                    raise failure
            except (KeyboardInterrupt, SystemExit):
                self._kill()  # nobody waits for the jobs that have begun
                raise
            finally:
                for future in waiting:
                    future.cancel()

    def run(self, function: Callable[[Job], Result], job: Job, apart: bool = False) -> Result:
        """Runs one job, in a worker if there are any, so that its memory is freed when the worker ends. If it runs `apart`,
        a worker is started for it if there is none: this process can then be interrupted also while the job is in a library
        that lets no signal through."""
        if apart:
            self._start(1)
        return self._call(function, job) if self._workers else function(job)

    def _start(self, processes: int) -> None:
        while len(self._workers) < processes:
            worker = _Worker()
            self._workers.append(worker)
            self._idle.put(worker)

    def _call(self, function: Callable[[Job], Result], job: Job) -> Result:
        worker = self._idle.get()
        try:
            return worker.call(function, job)
        finally:
            self._idle.put(worker)

    def _kill(self) -> None:
        for worker in self._workers:
            worker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._kill()
        for worker in self._workers:
            worker.close()


class _Failure:
    def __init__(self, error: Exception) -> None:
        self.error = error


def _catch_failure(jobs: Iterable[Job]) -> Iterator[Job | _Failure]:
    """Yields the jobs, and an exception of the iterator as the last item, so that earlier jobs are finished first."""
    try:
        yield from jobs
    except Exception as error:
        yield _Failure(error)


class _Worker:
    def __init__(self) -> None:
        here = str(Path(lockstep.__file__).parents[1])
        path = os.pathsep.join(filter(None, [here, environment_variables.python_path()]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lockstep.data.corpus.pool", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            process_group=0,  # Ctrl-C must not reach it, not even while Python starts; the parent handles it
        )

    def call(self, function: Callable[[Job], Result], job: Job) -> Result:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            pickle.dump((function, job), self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
            done, value = pickle.load(self._process.stdout)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError):
            code = self._process.wait()
            why = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise WorkerEnded(
                f"A process that prepares the text ended unexpectedly ({why}).",
                "Start it again: finished shards are kept. If memory ran out, set data.processes to a smaller number.",
            ) from None
        if not done:
            raise value
        result: Result = value
        return result

    def kill(self) -> None:
        """Kills the process. Shards are renamed into place when they are complete, so none is left half-written."""
        self._process.kill()

    def close(self) -> None:
        """Waits until the killed process has ended."""
        self._process.communicate()


def _serve() -> None:
    """Runs a worker: reads jobs from standard input and writes results to standard output, which nothing else may use."""
    with contextlib.suppress(AttributeError, OSError):  # not on Linux: the worker ends at the end of its input
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[1]):  # the parent ended before prctl was called
        return
    gc.disable()  # jobs make many lists and no reference cycles
    jobs, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            function, job = pickle.load(jobs)
        except EOFError:
            return
        try:
            answer = True, function(job)
        except Exception as error:
            answer = False, error
        pickle.dump(answer, results, pickle.HIGHEST_PROTOCOL)
        results.flush()


if __name__ == "__main__":
    _serve()
