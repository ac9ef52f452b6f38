"""The checkpoints of a run, with the size of every file."""

from dataclasses import dataclass
from pathlib import Path

from lockstep.run.checkpoint import read_checkpoint


@dataclass(frozen=True)
class SavedCheckpoint:
    name: str
    step: int
    files: dict[str, int]  # bytes of every file, the manifest included

    @property
    def size(self) -> int:
        return sum(self.files.values())

    def sum_files(self, folder: str) -> int:
        """Returns the bytes of all files in a folder of the checkpoint: `state` or `model`."""
        return sum(size for name, size in self.files.items() if name.startswith(f"{folder}/"))


def read_saved_checkpoint(path: Path) -> SavedCheckpoint | None:
    """Returns None when the checkpoint has no readable manifest."""
    checkpoint = read_checkpoint(path)
    if checkpoint is None:
        return None
    manifest = path / "manifest.json"
    own = {manifest.name: manifest.stat().st_size} if manifest.exists() else {}
    files = own | {name: int(facts["bytes"]) for name, facts in checkpoint.manifest["files"].items()}
    return SavedCheckpoint(path.name, checkpoint.step, files)
