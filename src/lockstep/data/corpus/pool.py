"""Worker processes for preparation: each takes one job after the other over a pipe.

A worker is a fresh `python -m lockstep.data.corpus.pool`. It shares no locks or threads with its parent, needs no
main guard in the caller's program, loads neither torch nor the command, and ends with its parent, however that ends.
Results come in the order of the jobs, so the number of processes cannot show in them.
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
from typing import Any, Generic, Self, TypeVar

import lockstep
from lockstep.errors import LockstepError

Job = TypeVar("Job")
Result = TypeVar("Result")
AHEAD = 2
"""Jobs per process that may wait: enough that no process is idle, few enough that memory stays small."""


class WorkerEnded(LockstepError):
    """A worker process was killed or crashed; what was finished before is sound."""


class Pool:
    """Runs jobs in `processes` processes, or in this one when one is asked for or there is only one job.

    Use it in a `with` statement; the workers start with the first jobs that need them and serve every later `map`.
    """

    def __init__(self, processes: int | None = None) -> None:
        self.processes = processes or len(os.sched_getaffinity(0))
        self._workers: list[_Worker[Any, Any]] = []
        self._idle: SimpleQueue[_Worker[Any, Any]] = SimpleQueue()

    def map(self, function: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """The results of a module's function for all jobs, in their order; jobs are only drawn when there is room.

        An error ends the stream at the place where its job, or the drawing of that job, stood in the order.
        """
        remaining = iter(jobs)
        first = list(islice(remaining, 1 if self.processes == 1 else 2))
        if self.processes == 1 or len(first) < 2:
            yield from (function(job) for job in chain(first, remaining))
            return
        self._start()
        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(self.processes) as threads:
            try:
                failure = None
                drawn = _until_failure(chain(first, remaining))
                for job in drawn:
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
            finally:
                for future in waiting:
                    future.cancel()

    def run(self, function: Callable[[Job], Result], job: Job) -> Result:
        """One job by itself; in a worker when there are any, so that the memory it took goes with that worker."""
        return self._call(function, job) if self._workers else function(job)

    def _start(self) -> None:
        while len(self._workers) < self.processes:
            worker: _Worker[Any, Any] = _Worker()
            self._workers.append(worker)
            self._idle.put(worker)

    def _call(self, function: Callable[[Job], Result], job: Job) -> Result:
        worker = self._idle.get()
        try:
            result: Result = worker.call(function, job)
            return result
        finally:
            self._idle.put(worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.close()


class _Failure:
    def __init__(self, error: Exception) -> None:
        self.error = error


def _until_failure(jobs: Iterable[Job]) -> Iterator[Job | _Failure]:
    """The jobs, and in place of an exception a last item that holds it: what was drawn before is finished first."""
    try:
        yield from jobs
    except Exception as error:
        yield _Failure(error)


class _Worker(Generic[Job, Result]):
    def __init__(self) -> None:
        here = str(Path(lockstep.__file__).parents[1])
        path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lockstep.data.corpus.pool", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
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
                "If memory ran out, set data.processes to a smaller number; finished shards are kept: start it again.",
            ) from None
        if not done:
            raise value
        result: Result = value
        return result

    def close(self) -> None:
        """Ends the process at once: its job, if any, is no longer wanted, and shards are only ever renamed whole."""
        self._process.kill()
        self._process.communicate()


def _serve() -> None:
    """What a worker does: jobs come on standard input, results go to standard output, which nothing else may use."""
    with contextlib.suppress(AttributeError, OSError):  # elsewhere than on Linux the end of the input has to do
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[1]):  # the parent was gone before it could be asked for
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent decides
    gc.disable()  # a job makes many lists and no cycles
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
