"""What all tests share: the real command as a subprocess, and a tiny corpus to train on."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml

if TYPE_CHECKING:
    from playwright.sync_api import Browser

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and so would programs started here
signal.signal(signal.SIGINT, signal.default_int_handler)  # where it is ignored, programs started here could not be told
for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE"):  # they colour what a test reads
    os.environ.pop(name, None)
DIRECT = "127.0.0.1,localhost,.invalid"
"""Servers of tests, and names that must not be found, are asked without a proxy."""
os.environ |= dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(filter(None, [os.environ.get("no_proxy"), DIRECT])))

WORDS = [consonant + vowel for consonant in "bdgklmn" for vowel in "aeiou"]
LSTM = ("model.name=lstm", "model.encoder_layers=1", "model.decoder_layers=2", "model.width=16")
"""The other model, as small, for the tiny config."""


def _emulates() -> bool:
    """Can this machine make hosts and a network of its own?"""
    unshare = ["unshare", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "true"]
    try:
        return os.geteuid() == 0 and subprocess.run(unshare, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


emulated_network = pytest.mark.skipif(
    not (_emulates() and shutil.which("tc")), reason="an emulated network needs root, namespaces and iproute2"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write golden files that are missing (test_golden.py)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file share its runs, so they go to one process unless they name a group of their own. Emulated hosts
    belong to the whole machine, and what one test leaves behind on purpose another one would clean up. xdist reads the
    groups in the same hook, so they must be there before."""
    for item in items:
        if any(mark == emulated_network.mark for mark in item.iter_markers("skipif")):
            item.add_marker(pytest.mark.xdist_group("emulated-hosts"))
        elif item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


@dataclass
class Tiny:
    """A corpus of made-up sentences whose translation is the reversed, capitalised sentence; and a config for it."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "tiny.yaml"


def write_pairs(folder: Path, name: str, count: int, seed: int) -> None:
    draw = random.Random(seed)
    sentences = [[draw.choice(WORDS) for _ in range(draw.randint(2, 9))] for _ in range(count)]
    (folder / f"{name}.en").write_text("".join(" ".join(words) + "\n" for words in sentences))
    (folder / f"{name}.de").write_text("".join(" ".join(reversed(words)).title() + "\n" for words in sentences))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("tiny")
    for seed, (name, count) in enumerate({"train": 300, "valid": 12, "test": 12}.items()):
        write_pairs(folder, name, count, seed)
    config = {
        "data": {
            "folder": str(folder),
            "train": ["train"],
            "validation": ["valid"],
            "test": ["test"],
            "corpus": str(folder / "corpus"),
            "vocabulary": {"size": 330},
        },
        "batch": {"words": 150},
        "model": {
            "encoder_layers": 1,
            "decoder_layers": 1,
            "width": 32,
            "feed_forward": 64,
            "heads": 4,
            "dropout": 0.1,
        },
        "train": {
            "steps": 8,
            "evaluate_every": 100,
            "checkpoint_every": 100,
            "precision": "fp32",
            "threads": 1,
            "clip": 1.0,
            "restarts": 0,
        },
        "schedule": {"name": "constant", "peak": 0.002, "warmup": 4},
        "search": {"beam": 2, "max_ratio": 1.0},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config))
    lockstep("prepare", folder / "tiny.yaml")
    return Tiny(folder)


def write_images(folder: Path, train: int, test: int, idx: bool = False) -> None:
    """Made-up images in the files that `lockstep data get` makes; a class is a brightness."""
    from lockstep.files import digest, write_json

    draw = np.random.default_rng(5)
    for name, count in (("train", train), ("test", test)):
        labels = draw.integers(0, 10, count).astype(np.uint8)
        noise = draw.integers(0, 100, (count, 784 if idx else 3072))
        images = (noise + 15 * labels[:, None]).astype(np.uint8)
        if idx:
            stem = "t10k" if name == "test" else "train"
            head = np.array([2051, count, 28, 28], ">i4").tobytes()
            (folder / f"{stem}-images-idx3-ubyte").write_bytes(head + images.tobytes())
            head = np.array([2049, count], ">i4").tobytes()
            (folder / f"{stem}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())
        else:
            records = np.concatenate([labels[:, None], images], axis=1)
            records.tofile(folder / ("test_batch.bin" if name == "test" else "data_batch_1.bin"))
    (folder / "classes.txt").write_text("".join(f"brightness {number}\n" for number in range(10)))
    made = {path.name: {"bytes": path.stat().st_size, "digest": digest(path, "sha256")} for path in folder.iterdir()}
    write_json(folder / "source.json", {"name": "made-up", "counts": {"train": train, "test": test}, "files": made})


@pytest.fixture(scope="session")
def tiny_images(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Few made-up images, a network that is as small as they come, and a config for it."""
    folder = tmp_path_factory.mktemp("tiny-images")
    (folder / "images").mkdir()
    write_images(folder / "images", train=60, test=20)
    config = {
        "data": {"images": str(folder / "images"), "augment": {"pad": 2, "cutout": 6}},
        "batch": {"images": 7},
        "model": {"name": "resnet", "depth": 8, "channels": 4},
        "train": {
            "steps": 8,
            "evaluate_every": 100,
            "checkpoint_every": 100,
            "precision": "fp32",
            "threads": 1,
            "clip": 1.0,
            "restarts": 0,
        },
        "optimizer": {"name": "sgd", "nesterov": True, "weight_decay": 5e-4},
        "schedule": {"name": "constant", "peak": 0.02, "warmup": 4},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config))
    return Tiny(folder)


def train_translator(folder: Path, tiny: Tiny, languages: str) -> Path:
    """Trains the tiny model until it writes sentences; four of its checkpoints are kept."""
    run = folder / "run"
    settings = ["train.steps=240", "train.evaluate_every=60", "train.checkpoint_every=60", "train.keep_last=4"]
    settings += [
        f"data.languages={languages}",
        f"data.corpus={folder / 'corpus'}",
        "schedule.peak=0.01",
        "search.beam=3",
    ]
    lockstep("train", tiny.config, *settings, "--workers", 1, "--run", run)
    return run


@pytest.fixture(scope="session")
def trained(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that translates made-up English to made-up German."""
    return train_translator(tmp_path_factory.mktemp("trained"), tiny, "[en, de]")


@pytest.fixture(scope="session")
def export_folder(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model for CTranslate2."""
    folder = tmp_path_factory.mktemp("exports") / "en-de"
    lockstep("export", trained, "--to", folder)
    return folder


@pytest.fixture(scope="session")
def back_folder(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for CTranslate2 that translates in the other direction."""
    folder = tmp_path_factory.mktemp("back")
    lockstep("export", train_translator(folder, tiny, "[de, en]"), "--to", folder / "de-en")
    return folder / "de-en"


@pytest.fixture(params=["_kernels_v4", "_kernels_v3", "_kernels"])
def native_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs a test with the library of each kind of vector instructions that this CPU has, with two threads."""
    import torch

    from lockstep.models import kernels

    before = torch.get_num_threads()
    if not kernels.LIBRARIES[request.param] <= kernels.read_cpu_flags():
        pytest.skip("this CPU lacks the instructions")
    monkeypatch.setattr(kernels, "LIBRARIES", {request.param: set[str]()})
    kernels.load.cache_clear()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    kernels.load.cache_clear()


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    from pages import CHROMIUM

    with sync_playwright() as tools:
        found = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.getuid() == 0 else [])
        yield found
        found.close()


TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--nproc-per-node",
    "2",
    "--standalone",
    "-m",
    "lockstep",
    "--",
]


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "lockstep", *(str(word) for word in words)]


def lockstep(*words: object, code: int | None = 0, fault: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Runs the real command; `code` is the exit code it must have (None: any)."""
    environment = os.environ | {"LOCKSTEP_FAULT": fault, "COLUMNS": "160"} | env
    result = subprocess.run(command(*words), env=environment, capture_output=True, text=True, timeout=240, check=False)
    if code is not None and result.returncode != code:
        pytest.fail(f"{words} ended with {result.returncode} instead of {code}:\n{result.stdout}\n{result.stderr}")
    return result


def steps(run: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The step lines of a worker's journal, the last attempt of each."""
    from lockstep.run.journal import read

    return read(run / "journal", rank).steps


def manifest(run: Path, step: int) -> dict[str, Any]:
    text = (run / "checkpoints" / f"step-{step:08d}" / "manifest.json").read_text()
    return dict(json.loads(text))


def weights(run: Path, step: int) -> dict[str, bytes]:
    """Every tensor of a checkpoint (model and optimizer) as bytes, whole, whatever files and parts it is spread over."""
    found = {name: _joined(parts) for name, parts in saved_parts(run, step).items()}
    assert any(name.startswith("optimizer.") for name in found)
    assert any(name.startswith("model.") for name in found)
    return {name: whole.tobytes() for name, whole in found.items()}


def saved_parts(run: Path, step: int) -> dict[str, list[tuple[list[int], np.ndarray]]]:
    """What the files of a checkpoint hold of each tensor: where a part begins in it, and the part."""
    from safetensors import safe_open

    found: dict[str, list[tuple[list[int], np.ndarray]]] = {}
    for path in sorted((run / "checkpoints" / f"step-{step:08d}" / "state").glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            places = json.loads((file.metadata() or {}).get("DCP_SHARDING_INFO", "{}"))
            for name in file.keys():  # noqa: SIM118
                part = file.get_tensor(name)
                begin = places[name]["saved_offsets"] if places else [0] * part.ndim  # a whole tensor has no place
                found.setdefault(name, []).append((begin, part))
    return found


def _joined(parts: list[tuple[list[int], np.ndarray]]) -> np.ndarray:
    ends = [[first + size for first, size in zip(begin, part.shape, strict=True)] for begin, part in parts]
    whole = np.empty([max(last) for last in zip(*ends, strict=True)], parts[0][1].dtype)
    for (begin, part), end in zip(parts, ends, strict=True):
        whole[tuple(slice(*bounds) for bounds in zip(begin, end, strict=True))] = part
    assert sum(part.size for _, part in parts) == whole.size, "parts are missing or there twice"
    return whole


@contextmanager
def running(
    tiny: Tiny, run: Path, *settings: str, workers: int, steps_first: int = 3
) -> Iterator[subprocess.Popen[str]]:
    """A long training in the background that has taken its first steps."""
    train = command("train", tiny.config, "train.steps=100000", *settings, "--workers", workers, "--run", run)
    process = subprocess.Popen(train, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 180
        while len(steps(run, workers - 1)) < steps_first:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "no step within three minutes"
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def forked(launcher: int) -> list[int]:
    """The processes that a launcher's fork server has started and that still run."""
    (fork_server,) = children(launcher)
    return children(fork_server)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until_dead(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"still running: {alive}"
        time.sleep(0.05)
