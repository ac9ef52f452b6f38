"""What a person is told when workers fail: real processes that end in known ways."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch

from lockstep.cli.train_command import choose_workers
from lockstep.config import build, load
from lockstep.devices import pick_device
from lockstep.errors import LockstepError, PortTaken
from lockstep.launch import fixed
from lockstep.launch.deaths import WorkerDied
from lockstep.launch.engine import join_engine
from lockstep.launch.environments.placement import WorkerPlacement
from lockstep.launch.fixed import FixedLaunch
from lockstep.launch.fork_server import ForkServer, Target
from lockstep.run import environment_variables
from lockstep.run.directory import RunDirectory
from lockstep.train import resume
from lockstep.train.choices import BatchBudget, Choices
from lockstep.train.worker import tell_launcher, train


@pytest.fixture(autouse=True)
def _can_import_scripted_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))


def worker(*ends: str) -> Target:
    """Processes of which each ends as the place of its rank in `ends` says."""
    return Target("scripted_worker", ends)


def failure(*ends: str, servers: int = 0) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        fixed.launch_fixed(worker(*ends), FixedLaunch(len(ends) - servers, servers))
    return caught.value


LOST = "time.sleep({}); tell_launcher(LostPeer(rank, 'Connection closed by peer')); raise SystemExit(1)"


def test_a_workers_own_sentence_reaches_the_launcher() -> None:
    cause = failure("tell_launcher(LockstepError('The disk is full.', 'Make room.', code=2)); raise SystemExit(2)", "0")
    assert (cause.message, cause.remedy, cause.code) == ("The disk is full.", "Make room.", 2)


def test_what_a_worker_says_of_itself_comes_before_lost_connections() -> None:
    own = "time.sleep(0.5); tell_launcher(LockstepError('No whole checkpoint.')); raise SystemExit(1)"
    assert failure(LOST.format(0), own).message == "No whole checkpoint."


def test_a_first_worker_that_dies_before_the_others_reach_it_is_the_cause() -> None:
    unreachable = "tell_launcher(Unreachable('Worker 1 could not reach the first worker.')); raise SystemExit(1)"
    cause = failure("time.sleep(0.3); os.kill(os.getpid(), signal.SIGKILL)", unreachable)
    assert isinstance(cause, WorkerDied)
    assert "Worker 0 (process " in cause.message


def test_a_killed_worker_is_named_with_its_signal_and_not_who_lost_it() -> None:
    cause = failure(LOST.format(0), "time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)")
    assert cause.message.startswith("Worker 1 (process ")
    assert "was killed by SIGKILL, which a person or a program sent: the kernel has killed nothing" in cause.message
    assert "last checkpoint" in cause.remedy


def test_a_server_is_called_one() -> None:
    assert failure("0", "0", "raise SystemExit(3)", servers=1).message.startswith("Server 0 (process ")


def test_a_port_that_is_taken_is_chosen_again_and_told_when_it_still_is() -> None:
    taken = "tell_launcher(PortTaken('Port 1 is already in use.', 'Set another.', code=2)); raise SystemExit(2)"
    assert isinstance(failure(taken, LOST.format(0)), PortTaken)


def test_a_port_that_was_taken_meanwhile_is_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ports: list[int] = []

    def once(server: ForkServer, launch: FixedLaunch, port: int, deaths: fixed.Deaths) -> None:
        ports.append(port)
        if len(ports) == 1:
            raise PortTaken("Port 1 is already in use.")

    monkeypatch.setattr(fixed, "_launch_once", once)
    fixed.launch_fixed(worker(), FixedLaunch(2))
    assert len(ports) == 2


def test_the_worker_that_failed_first_is_blamed() -> None:
    cause = failure("time.sleep(3); os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit(1)")
    assert cause.message.startswith("Worker 1 (process ")
    assert "ended with exit code 1 and did not say why: its code called exit(1)" in cause.message


def test_the_log_of_a_worker_that_crashed_is_named() -> None:
    cause = failure("time.sleep(600)", "os.kill(os.getpid(), signal.SIGSEGV)")
    assert "was killed by SIGSEGV; see logs/worker-0001.log in the run folder (established)." in cause.message


def test_a_worker_that_hangs_after_another_s_end_is_not_left_behind(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    failure(f"open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)", "time.sleep(1); raise SystemExit(1)")
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_a_signal_is_passed_on_also_to_those_that_do_not_listen_yet(tmp_path: Path) -> None:
    slow = "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), os._exit(0)))"
    tell = "os.kill(int(os.environ['LOCKSTEP_LAUNCHER']), signal.SIGTERM)"
    assert (
        fixed.launch_fixed(worker(f"{slow}; {tell}; time.sleep(600)", "time.sleep(600)"), FixedLaunch(2))
        == signal.SIGTERM
    )


def test_the_others_may_do_without_any_but_the_first() -> None:
    die = "os.kill(os.getpid(), signal.SIGKILL)"
    assert fixed.launch_fixed(worker("time.sleep(0.5)", die), FixedLaunch(2, can_lose_workers=True)) is None
    with pytest.raises(LockstepError, match="Worker 0"):
        fixed.launch_fixed(worker(die, "time.sleep(0.5)"), FixedLaunch(2, can_lose_workers=True))


def test_the_others_may_do_without_one_that_has_no_memory_left(capfd: pytest.CaptureFixture[str]) -> None:
    full = "tell_launcher(OutOfMemory('Worker ran out of memory.', 'Take more.')); raise SystemExit(1)"
    assert fixed.launch_fixed(worker("time.sleep(0.5)", full), FixedLaunch(2, can_lose_workers=True)) is None
    assert "ended with exit code 1 (out of memory); the others continue." in capfd.readouterr().err
    assert failure("time.sleep(0.5)", full).message == "Worker ran out of memory."


def test_the_error_file_is_plain_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "e"))
    tell_launcher(LockstepError("A.", "B."))
    assert json.loads(json.loads((tmp_path / "e").read_text())["message"])["message"] == "A."


def test_an_engine_is_joined_with_the_variables_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # so that what the call sets is undone
        monkeypatch.delenv(name)
    assert join_engine() is None
    for name, value in {"RANK": "3", "SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "2"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    with pytest.raises(LockstepError, match="MASTER_ADDR"):
        join_engine()
    monkeypatch.setenv("MASTER_ADDR", "node1")
    assert isinstance(join_engine(), WorkerPlacement)
    assert (environment_variables.rank(), environment_variables.world_size()) == (3, 4)
    assert (environment_variables.local_rank(), environment_variables.local_world_size()) == (1, 2)
    assert environment_variables.rendezvous() == ("node1", "29400")


def test_ranks_that_are_not_meant_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LOCKSTEP_ENVIRONMENT": "none", "RANK": "3", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert join_engine() is None
    assert (environment_variables.rank(), environment_variables.world_size()) == (0, 1)


@pytest.mark.parametrize(
    ("error", "batch", "advice"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), {}, "set batch.micro_words"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), {"images": 8}, "lower batch.images"),
    ],
)
def test_memory_that_runs_out_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, batch: dict[str, int], advice: str
) -> None:
    def fail(*_: object) -> str:
        raise error

    monkeypatch.setattr("lockstep.train.worker._enter_and_train", fail)
    config = load(Path(__file__).parents[2] / "configs" / "demo.yaml", [])
    with pytest.raises(LockstepError, match=r"^Worker 0 ran out of memory\.") as caught:
        train(config.model_copy(update={"batch": config.batch.model_copy(update=batch)}), tmp_path)
    assert advice in caught.value.remedy


def test_two_workers_with_one_gpu_are_refused() -> None:
    def worker(host: str, name: str) -> resume.HostFacts:
        return {"host": host, "device": "", "device_name": name, "cores": 8, "memory": 0}

    facts: list[resume.HostFacts] = [{**worker("node1", "H100"), "gpu": gpu} for gpu in ("a", "b", "a")]
    resume.check_gpus([*facts[:2], worker("node2", "EPYC"), worker("node2", "EPYC")])
    with pytest.raises(LockstepError, match="Workers 0 and 2 on node1 have the same GPU"):
        resume.check_gpus(facts)


def test_a_worker_takes_the_gpu_that_its_engine_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.delenv("LOCKSTEP_LAUNCHER", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert pick_device("auto", 1) == torch.device("cuda", 0)
    monkeypatch.setenv("LOCKSTEP_LAUNCHER", "1")  # two workers of ours would share it
    with pytest.raises(LockstepError, match="Worker 1 on this machine has no GPU"):
        pick_device("auto", 1)


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 1), (4, 1), (8, 2), (64, 16)])
def test_a_cpu_gets_a_worker_for_every_four_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cores: int, workers: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    config = build({"data": {"grammar": {"train": 10, "validation": 2}}, "train": {"device": "cpu"}}, "test")
    assert choose_workers(config, tmp_path) == workers


def test_a_resumed_run_keeps_its_workers_if_there_are_cores_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = build({"data": {"grammar": {"train": 10, "validation": 2}}, "train": {"device": "cpu"}}, "test")
    budget: BatchBudget = {"words": 100, "sentences": None, "images": None, "per": "global"}
    Choices("fp32", 1, budget, workers=2).write(RunDirectory(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert choose_workers(config, tmp_path) == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert choose_workers(config, tmp_path) == 1
