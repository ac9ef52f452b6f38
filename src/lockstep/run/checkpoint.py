"""Checkpoints on disk, as anyone can read them: no torch is needed.

step-00002000/
    manifest.json          step, data position, scores, scalars, config, and size and SHA-256 of every file below
    state/*.safetensors    model and optimizer, whole or in parts: any number of workers can read it
    model/                 the model alone, with its config and vocabulary, for use without Lockstep's trainer
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lockstep.errors import LockstepError
from lockstep.files import sha256
from lockstep.run.best import Evaluation

FORMAT = 1


@dataclass
class Progress:
    """Where a run stands, beside its tensors."""

    step: int = 0
    epoch: int = 0
    cursor: int = 0
    skipped_in_a_row: int = 0
    skipped: int = 0
    evaluations_without_gain: int = 0
    best_score: float | None = None
    best_step: int | None = None
    best_loss: float | None = None  # decides between equal scores
    score: float | None = None  # of the evaluation after this step; None: it was not evaluated
    loss: float | None = None  # of the same evaluation
    is_evaluation_missed: bool = False  # a stop signal ended an evaluation since the last one that was completed
    save_every: int | None = None  # steps until the next save, which train.checkpoint_every=auto has chosen
    scalars: dict[str, float] = field(default_factory=dict)
    lineage: list[tuple[str, int]] = field(default_factory=list)
    """For elastic workers: the starts from a checkpoint that led here, each a name and the checkpoint's step. When all
    workers died, the steps after that checkpoint were lost; by the names a journal's reader knows which."""

    @property
    def best(self) -> Evaluation | None:
        """The best evaluation up to this step."""
        if self.best_step is None or self.best_score is None:
            return None
        return Evaluation(self.best_step, self.best_score, self.best_loss)

    @best.setter
    def best(self, evaluation: Evaluation) -> None:
        self.best_step, self.best_score, self.best_loss = evaluation.step, evaluation.score, evaluation.loss


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint and its manifest."""

    path: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.manifest["progress"]["step"])

    @property
    def score(self) -> float | None:
        score = self.manifest["progress"]["score"]
        return None if score is None else float(score)

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluation of this checkpoint, or None when it was not evaluated. Manifests of version 0.1.0 have its loss
        only where it was the best one so far."""
        if self.score is None:
            return None
        progress = self.manifest["progress"]
        loss = progress.get("loss")
        if loss is None and progress.get("best_step") == self.step:
            loss = progress.get("best_loss")
        return Evaluation(self.step, self.score, loss)

    @property
    def bytes(self) -> int:
        return sum(int(file["bytes"]) for file in self.manifest["files"].values())

    def progress(self) -> Progress:
        return Progress(**self.manifest["progress"])

    def check_files(self, part: str = "") -> Iterator[tuple[str, str | None]]:
        """Yields the name of every file (of a part such as `model/`), and what is wrong with it, or None when every byte is
        as it was written."""
        for name, expected in self.manifest["files"].items():
            file = self.path / name
            if not name.startswith(part):
                continue
            if not file.is_file():
                yield name, f"{name} is missing"
            elif file.stat().st_size != expected["bytes"] or sha256(file) != expected["sha256"]:
                yield name, f"{name} does not match its digest"
            else:
                yield name, None

    def damage(self, part: str = "") -> str | None:
        """What is wrong with the first damaged file (of a part such as `model/`), or None when all are as written."""
        return next((damage for _, damage in self.check_files(part) if damage is not None), None)


def sign(progress: dict[str, Any], config: dict[str, Any], files: dict[str, Any]) -> dict[str, Any]:
    """Returns a manifest with its own digest."""
    manifest = {"format": FORMAT, "progress": progress, "config": config, "files": files}
    return manifest | {"sha256": _own_digest(manifest)}


def _own_digest(manifest: dict[str, Any]) -> str:
    facts = {name: value for name, value in manifest.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Returns the checkpoint in a folder; None when its manifest is missing, of another format or damaged."""
    try:
        return parse(path, (path / "manifest.json").read_bytes())
    except OSError:
        return None


def parse(path: Path, text: bytes) -> Checkpoint | None:
    """Returns the checkpoint of a manifest; None when it is of another format or damaged."""
    try:
        manifest = json.loads(text)
        is_whole = manifest["format"] == FORMAT and manifest["sha256"] == _own_digest(manifest)
        return Checkpoint(path, manifest) if is_whole else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def list_all(folder: Path) -> list[Checkpoint]:
    """Returns the checkpoints with a good manifest, oldest first. The digests of their files are not checked."""
    read = (read_checkpoint(path) for path in sorted(folder.glob("step-*")))
    return [checkpoint for checkpoint in read if checkpoint is not None]


def find_newest_whole(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Returns the newest checkpoint without damage, and a sentence about each newer one that was skipped."""
    skipped: list[str] = []
    for path in sorted(folder.glob("step-*"), reverse=True):
        checkpoint = read_checkpoint(path)
        damage = "no readable manifest" if checkpoint is None else checkpoint.damage()
        if checkpoint is not None and damage is None:
            return checkpoint, skipped
        skipped.append(f"{path.name}: {damage}")
    return None, skipped


@dataclass(frozen=True)
class ChosenCheckpoint:
    """A checkpoint that was chosen. When it is not the one that was asked for, `notice` is a sentence that says so."""

    saved: Checkpoint
    notice: str | None = None


def choose(all_saved: list[Checkpoint], which: Literal["best", "last"]) -> ChosenCheckpoint:
    """Chooses from the checkpoints of a run, oldest first and at least one. The last one names the best step. When that
    checkpoint is missing, or no checkpoint was evaluated, the last one is chosen."""
    last = all_saved[-1]
    best_step = last.progress().best_step
    if which == "last" or best_step is None:
        return ChosenCheckpoint(last)
    for saved in all_saved:
        if saved.step == best_step:
            return ChosenCheckpoint(saved)
    return ChosenCheckpoint(
        last, f"The best checkpoint, of step {best_step:,}, is missing: the last one, of step {last.step:,}, is used."
    )


@dataclass(frozen=True)
class FoundModel:
    """A model folder. When it is not of the checkpoint that was asked for, `notice` is a sentence that says so."""

    folder: Path
    notice: str | None = None


def find_model(path: Path, checkpoint: Literal["best", "last"] = "best") -> FoundModel:
    """Finds the model of a run directory (its best or last checkpoint), a checkpoint or a model folder."""
    if (path / "model.safetensors").is_file():
        return FoundModel(path)
    if (path / "model" / "model.safetensors").is_file():
        return FoundModel(path / "model")
    if not path.is_dir():
        what = f"{path} is a file." if path.is_file() else f"There is no folder {path}."
        near = Path("runs") / (path.stem if path.suffix == ".yaml" else path)
        remedy = f"Did you mean {near}?" if near.is_dir() else "Name a run folder, a checkpoint or a model folder."
        raise LockstepError(what, remedy, code=2)
    all_saved = list_all(path / "checkpoints")
    undamaged = [saved for saved in all_saved if saved.damage("model/") is None]
    if not undamaged:
        raise LockstepError(
            f"There is no trained model in {path}.", "Name a run folder with a checkpoint, or train one first.", code=2
        )
    choice = choose(all_saved, checkpoint)
    saved, notice = choice.saved, choice.notice
    damage = saved.damage("model/")
    if damage is not None:
        saved = choose(undamaged, checkpoint).saved
        notice = f"{choice.saved.path.name} is damaged ({damage}): {saved.path.name} is used."
    return FoundModel(saved.path / "model", notice)


@contextmanager
def report_unusable(folder: Path) -> Iterator[None]:
    """The context of reading an exported model: turns every failure into one sentence."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LockstepError(f"The model in {folder} cannot be used: {reason}.", "Take another checkpoint.") from None


def read_model_config(folder: Path, key: str, does: str) -> dict[str, Any]:
    """Returns the config of an exported model. It has `key` if the model does what is asked for, such as translating."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if key not in config:
        raise LockstepError(f"The model in {folder} {does} nothing.", "Name a run of the right task.", code=2)
    return dict(config)
