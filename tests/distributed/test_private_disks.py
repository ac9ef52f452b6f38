"""Hosts that do not share the run folder: it is on the first one, and everything else is as if they shared it."""

import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Tiny, emulated_network, lockstep, steps, weights
from lockstep.files import read_json, write_json
from lockstep.lab.emulated_network import EmulatedNetwork
from lockstep.remote.store import Store
from lockstep.run.journal import read
from lockstep.run.outbox import NAME as OUTBOX
from private_disks import PrivateDisks

pytestmark = emulated_network

SETTINGS = ("train.steps=16", "train.checkpoint_every=4", "train.evaluate_every=null")
WORKER_1 = "journal/worker-0001.jsonl"


@pytest.fixture
def disks(tiny: Tiny, tmp_path: Path) -> PrivateDisks:
    return PrivateDisks(tiny, tmp_path)


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not is_true():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture(scope="module")
def whole_sharded(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_whole(tiny, tmp_path_factory.mktemp("whole") / "run", "strategy.name=sharded")


def train_whole(tiny: Tiny, run: Path, *settings: str) -> Path:
    """The same training with two workers that share the run folder."""
    lockstep("train", tiny.config, *SETTINGS, *settings, "--workers", 2, "--run", run)
    return run


def check_same(run: Path, whole: Path, step: int) -> None:
    lockstep("checkpoint", "verify", run)
    assert weights(run, step) == weights(whole, step)
    for rank in (0, 1):
        assert [line["loss"] for line in steps(run, rank)] == [line["loss"] for line in steps(whole, rank)]
        assert read(run / "journal", rank).damaged == 0


def read_attempts(run: Path, rank: int) -> list[int]:
    return [line["attempt"] for line in read(run / "journal", rank).of("run")]


@pytest.mark.parametrize(
    ("strategy", "torchrun"),
    [
        ("sharded", False),
        pytest.param("allreduce", True, marks=pytest.mark.slow),
        pytest.param("server", True, marks=pytest.mark.slow),
        pytest.param("local", False, marks=pytest.mark.slow),
    ],
)
def test_killed_and_started_again_it_ends_in_the_bits_of_a_shared_folder(
    disks: PrivateDisks, tiny: Tiny, whole_sharded: Path, tmp_path: Path, strategy: str, torchrun: bool
) -> None:
    words = disks.make_words(*SETTINGS, f"strategy.name={strategy}")
    with EmulatedNetwork(2) as network:
        fault = "kill:phase=forward:step=15:rank=1"
        disks.train(network, words, code=None, fault=fault, torchrun=torchrun)
        said = disks.train(network, words, torchrun=torchrun)
    assert re.search("Continuing from step (8|12)", said[0])  # a save is complete when the next one begins
    assert "h2 does not share" in said[0]
    is_other = strategy != "sharded"
    whole = train_whole(tiny, tmp_path / "whole", f"strategy.name={strategy}") if is_other else whole_sharded
    check_same(disks.run(), whole, 16)
    assert read_attempts(disks.run(), 0) == read_attempts(disks.run(), 1) == [1, 2]
    assert not (disks.run(2) / "checkpoints").exists()


@pytest.mark.slow
@pytest.mark.parametrize("point", ["write:rank=1", "save:rank=1", "parts:rank=0", "rename:rank=0", "receive:rank=0"])
def test_a_kill_while_parts_are_sent_leaves_the_checkpoint_before(
    disks: PrivateDisks, whole_sharded: Path, point: str
) -> None:
    """`receive` kills the service."""
    words = disks.make_words(*SETTINGS, "strategy.name=sharded")
    with EmulatedNetwork(2) as network:
        dead = disks.train(network, words, code=None, fault=f"kill:phase={point}:step=8")
        assert not any("Traceback" in said for said in dead), dead
        lockstep("checkpoint", "verify", disks.run())
        saved = {path.name for path in (disks.run() / "checkpoints").glob("step-*")}
        assert saved == {"step-00000004"}, "the kill came too late"
        disks.train(network, words)
    check_same(disks.run(), whole_sharded, 16)


@pytest.mark.slow
@pytest.mark.parametrize("is_wiped", [False, True])
def test_journals_arrive_while_it_trains_and_after_a_host_was_lost(disks: PrivateDisks, is_wiped: bool) -> None:
    many = disks.make_words("train.steps=100000", "train.checkpoint_every=10", "train.evaluate_every=null")
    with EmulatedNetwork(2) as network:
        with disks.start(network, many, torchrun=True) as processes:
            wait_until(lambda: len(steps(disks.run(), 1)) > 30, "the lines of the second host came in")
            processes[1].send_signal(signal.SIGKILL)  # with everything on this host
            wait_until(lambda: processes[0].poll() is not None, "the first host noticed")
        (left,) = disks.run(2).glob(f"{OUTBOX}/*/{WORKER_1}")
        written = left.read_text()
        arrived = (disks.run() / WORKER_1).read_text()
        assert written.startswith(arrived)
        if is_wiped:
            shutil.rmtree(disks.run(2))
            written = arrived
        before = len(steps(disks.run()))
        more = disks.make_words(f"train.steps={before + 5}", "train.checkpoint_every=10", "train.evaluate_every=null")
        disks.train(network, more, torchrun=True)
    final = (disks.run() / WORKER_1).read_text()
    assert final.startswith(written[: written.rfind("\n") + 1])
    assert read_attempts(disks.run(), 1) == [1, 2]
    numbers = [line["step"] for line in steps(disks.run(), 1)]
    assert is_wiped or numbers == list(range(1, before + 6))
    assert numbers[-5:] == list(range(before + 1, before + 6))


@pytest.mark.slow
def test_the_first_host_continues_alone(disks: PrivateDisks, tiny: Tiny, tmp_path: Path) -> None:
    plain = (*SETTINGS, "model.dropout=0")  # dropout differs with the number of workers
    with EmulatedNetwork(2) as network:
        disks.train(network, disks.make_words(*plain, "strategy.name=sharded"))
    words = disks.make_words(*plain, "train.steps=20", "strategy.name=allreduce")
    with EmulatedNetwork(1) as network:
        said = disks.train(network, words)
    assert "Continuing from step 16" in said[0]
    whole = train_whole(tiny, tmp_path / "whole", "train.steps=20", "model.dropout=0")
    for one, other in zip(steps(disks.run()), steps(whole), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-4)


@pytest.mark.slow
def test_a_host_without_the_state_of_the_run_cannot_be_the_first(disks: PrivateDisks) -> None:
    words = disks.make_words("train.steps=2")
    with EmulatedNetwork(2) as network:
        disks.train(network, words)
        network.members.reverse()
        said = disks.train(network, words, code=2)
        assert "is on h1: h2 has only been sending to it. Start the first worker on h1" in " ".join(said[0].split())
        shutil.rmtree(disks.run(2))
        said = disks.train(network, words, code=2)
        assert "on h1 has a checkpoint of step 2, and the folder of the first" in " ".join(said[0].split())


@pytest.mark.slow
def test_a_stale_copy_is_not_read_and_another_run_is_not_passed_over(disks: PrivateDisks) -> None:
    with EmulatedNetwork(2) as network:
        disks.train(network, disks.make_words("train.steps=2"))
        shutil.rmtree(disks.run(2))
        shutil.copytree(disks.run(), disks.run(2))
        disks.train(network, disks.make_words("train.steps=4"))
        said = disks.train(network, disks.make_words("train.steps=6"))
        assert "on h2 is an older copy of the run: it is not read." in " ".join(said[1].split())
        assert "Continuing from step 4" in said[0]
        assert [path.name for path in (disks.run(2) / "checkpoints").iterdir()] == ["step-00000002"]
        choices = disks.run(2) / "choices.json"
        write_json(choices, read_json(choices) | {"run": "another"})
        said = disks.train(network, disks.make_words("train.steps=8"), code=2)
        assert "on h2 has a checkpoint of step 2, of another run" in " ".join(said[0].split())


@pytest.mark.slow
def test_a_run_on_an_object_store_needs_no_shared_cache(
    disks: PrivateDisks, whole_sharded: Path, tmp_path: Path
) -> None:
    """Nor a shared corpus: the second host prepares its own."""
    shutil.rmtree(disks.find(2) / "text" / "corpus")
    url = f"file://{tmp_path}/store/first"
    words = disks.make_words(*SETTINGS, "strategy.name=sharded", run=url)
    with EmulatedNetwork(2) as network:
        disks.train(network, words, code=None, fault="kill:phase=forward:step=15:rank=1")
        shutil.rmtree(disks.find(1) / "cache")  # the first host is another machine now
        said = disks.train(network, words)
    assert re.search("Continuing from step [48]", said[0])
    (folder,) = (disks.find(1) / "cache" / "runs").glob("*first*")
    check_same(folder, whole_sharded, 16)
    store = Store(url)
    for rank in (0, 1):
        assert (
            store.read(f"journal/worker-{rank:04d}.jsonl") == (folder / f"journal/worker-{rank:04d}.jsonl").read_bytes()
        )
    assert read_attempts(folder, 1) == [1, 2]
