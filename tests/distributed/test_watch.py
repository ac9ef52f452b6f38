"""Measurements of the machine, the model and the link in real runs, which change no result."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conftest import Tiny, command, lockstep, steps, weights
from lockstep.launch.fixed import find_free_port
from lockstep.models.fused import ROW_UNIT
from lockstep.run.journal import read

HOST_KEYS = {"cores", "memory", "disk", "network", "gpus"}
OFF = ("watch.sample_seconds=0", "watch.probe=false")


def events(run: Path, kind: str, rank: int = 0) -> list[dict[str, Any]]:
    return read(run / "journal", rank).of(kind)


@pytest.fixture(scope="module")
def watched(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "watched"
    lockstep("train", tiny.config, "train.steps=12", "watch.sample_seconds=0.02", "--workers", 2, "--run", run)
    return run


def test_every_worker_samples_its_process_and_the_first_samples_the_host(watched: Path) -> None:
    first, second = events(watched, "system", 0), events(watched, "system", 1)
    for line in first + second:
        assert line["host"] == socket.gethostname()
        assert line["process"]["resident"] > 2**20
        assert line["own"] > 0
        assert "left_out" not in line or set(line["left_out"]) <= {"disk"}
    assert all(line.keys() & HOST_KEYS >= HOST_KEYS - {"disk"} for line in first)
    assert all(not line.keys() & HOST_KEYS for line in second)
    assert sum(line["process"]["cpu"] for line in first) > 0
    assert sum(line["network"].get("lo", {"sent": 0})["sent"] for line in first) > 0, "gradients pass the loopback"


def test_samples_are_taken_until_the_end_of_the_run(watched: Path) -> None:
    for rank in (0, 1):
        lines = [
            json.loads(line) for line in (watched / "journal" / f"worker-000{rank}.jsonl").read_text().splitlines()
        ]
        kinds = [line["kind"] for line in lines]
        assert kinds[-1] == "stop"
        assert len(kinds) - kinds[::-1].index("system") > len(kinds) - kinds[::-1].index("step")
        times = [line["time"] for line in lines]
        assert times == sorted(times)


def test_tensorboard_shows_the_samples(watched: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown = EventAccumulator(str(watched / "tensorboard"))
    shown.Reload()
    assert set(shown.Tags()["scalars"]) >= {"worker/cores", "worker/resident", "host/cores_busy", "host/memory_used"}
    resident = [event.value for event in shown.Scalars("worker/resident")]
    sampled = [line["process"]["resident"] for line in events(watched, "system")]
    assert resident
    assert resident == pytest.approx(sampled[-len(resident) :], rel=1e-6), (
        "all samples except those before the first step"
    )


def count_linear(words: list[dict[str, int]], unit: int) -> float:
    """Returns the FLOPs of linear layers per target word, with the words of every share padded to a multiple of `unit`."""
    layers = 4 * 32**2 + 2 * 32 * 64
    source, target = (sum(-(-line[side] // unit) * unit for line in words) for side in ("source", "target"))
    per_source, per_target = layers + 2 * 32**2, layers + 2 * 32**2 + 32 * 330
    return 6 * (source * per_source + target * per_target) / sum(line["target"] for line in words)


def test_flops_and_peak_are_journaled(watched: Path) -> None:
    (first,), (second,) = events(watched, "model", 0), events(watched, "model", 1)
    assert first["parameters"] == second["parameters"] == 31_680
    assert first["flops_per_word"] == second["flops_per_word"]
    words = [line["words"] for rank in (0, 1) for line in steps(watched, rank)[1:4]]
    assert count_linear(words, unit=1) < first["flops_per_word"] < 1.2 * count_linear(words, unit=ROW_UNIT), (
        "attention's share is small in short sentences, though padded"
    )
    stored = json.loads((watched / "choices.json").read_text())["measured"][0]["peak_flops"]
    assert [first["peak_flops"], second["peak_flops"]] == pytest.approx(stored, rel=1e-5)


def test_the_link_between_workers_is_measured(watched: Path) -> None:
    (first,), (second,) = events(watched, "link", 0), events(watched, "link", 1)
    assert first["interface"] == second["interface"] == "lo"
    assert first["probe_bits"] == second["probe_bits"] > 1e6
    assert 0 < first["latency_seconds"] == second["latency_seconds"]
    assert first["link_bits"] is None


def test_the_probes_come_before_the_last_warmup_step(watched: Path) -> None:
    lines = [json.loads(line) for line in (watched / "journal" / "worker-0000.jsonl").read_text().splitlines()]
    kinds = [line["step"] if line["kind"] == "step" else line["kind"] for line in lines]
    kinds = [word for word in kinds if word not in ("system", "run")]
    assert kinds[:7] == [1, 2, 3, 4, "model", "link", 5]


def test_the_summary_has_the_flop_rate_and_the_mfu(watched: Path) -> None:
    (summary,) = json.loads(lockstep("runs", watched, "--json").stdout)
    arithmetic, models = summary["arithmetic"], [events(watched, "model", rank)[0] for rank in (0, 1)]
    assert arithmetic["flops_per_second"] == pytest.approx(summary["words_per_second"] * models[0]["flops_per_word"])
    assert arithmetic["peak_flops"] == pytest.approx(sum(model["peak_flops"] for model in models))
    assert arithmetic["mfu"] == pytest.approx(arithmetic["flops_per_second"] / arithmetic["peak_flops"], rel=0.2)
    assert arithmetic["parameters"] == 31_680


def test_watching_changes_no_bit(tiny: Tiny, watched: Path, tmp_path: Path) -> None:
    lockstep("train", tiny.config, "train.steps=12", *OFF, "--workers", 2, "--run", tmp_path)
    assert weights(tmp_path, 12) == weights(watched, 12)
    assert not [line for kind in ("system", "model", "link") for line in events(tmp_path, kind)]
    (summary,) = json.loads(lockstep("runs", tmp_path, "--json").stdout)
    assert summary["arithmetic"]["mfu"] is None


def test_a_launch_with_the_same_workers_reuses_the_measurements(tiny: Tiny, tmp_path: Path) -> None:
    train = ("train", tiny.config, "--run", tmp_path)
    lockstep(*train, "train.steps=6")
    lockstep(*train, "train.steps=12")
    assert not events(tmp_path, "link"), "one worker has no link"
    lockstep(*train, "train.steps=18", "--workers", 2)
    first, again, other = events(tmp_path, "model")
    figures = ("parameters", "flops_per_word", "peak_flops")
    assert [first[name] for name in figures] == [again[name] for name in figures]
    assert again["seconds"] == 0 < other["seconds"], "two workers have a peak of their own"
    assert len(json.loads((tmp_path / "choices.json").read_text())["measured"]) == 2


def _can_rename_host() -> bool:
    """Can a process have its own host name here?"""
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "--uts", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not _can_rename_host(), reason="needs root and a UTS namespace to rename a host")
def test_one_worker_of_each_host_samples_it(tiny: Tiny, tmp_path: Path) -> None:
    train = command("train", tiny.config, "watch.sample_seconds=0.1", "--run", tmp_path)
    rendezvous = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(find_free_port())}
    rendezvous["LOCAL_RANK"] = "0"
    workers = [
        subprocess.Popen(
            ["unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', host, *train],
            env=os.environ | rendezvous | {"RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, host in enumerate(("one", "two", "two"))
    ]
    for worker in workers:
        assert worker.wait(timeout=240) == 0, worker.communicate()[1]
    lines = [events(tmp_path, "system", rank)[0] for rank in range(3)]
    assert [(line["host"], "cores" in line) for line in lines] == [("one", True), ("two", True), ("two", False)]


@pytest.mark.parametrize(
    ("settings", "in_lockstep"),
    [
        pytest.param(("strategy.name=server", "strategy.mode=sync", "--servers", 1), True, marks=pytest.mark.slow),
        (("strategy.name=server", "strategy.mode=async", "--servers", 1), False),
        (("strategy.name=sharded",), True),
        pytest.param(("strategy.name=local",), True, marks=pytest.mark.slow),
        pytest.param(("strategy.name=resilient",), False, marks=pytest.mark.slow),
    ],
    ids=["sync", "async", "sharded", "local", "resilient"],
)
def test_every_strategy_is_measured(
    tiny: Tiny, tmp_path: Path, settings: tuple[object, ...], in_lockstep: bool
) -> None:
    if "strategy.name=resilient" in settings:
        pytest.importorskip("torchft")
    lockstep("train", tiny.config, "train.steps=20", *settings, "--workers", 2, "--run", tmp_path)
    (summary,) = json.loads(lockstep("runs", tmp_path, "--json").stdout)
    assert summary["arithmetic"]["flops_per_second"] > 0
    models = [line for rank in (0, 1) for line in events(tmp_path, "model", rank)]
    assert models
    for line in models:
        assert line["parameters"] == 31_680
        assert 160_000 < line["flops_per_word"] < 290_000, "with padding: shares of about 50 words are padded to 64"
        assert line["peak_flops"] > 0
    links = [len(events(tmp_path, "link", rank)) for rank in (0, 1)]
    assert links == ([1, 1] if in_lockstep else [0, 0]), "only workers that always step together can run a probe"
    sampled = [events(tmp_path, "system", rank) for rank in (0, 1)]
    assert [any("cores" in line for line in lines) for lines in sampled] == [True, False]
