"""Where the part of a worker is, while a checkpoint is being made."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CheckpointPart:
    """What one worker writes of a checkpoint."""

    folder: Path  # of all checkpoints of the run
    step: int
    token: str  # a name that only this save has
    rank: int
    workers: int  # each writes a part

    @property
    def aside(self) -> Path:
        return self.folder / f".step-{self.step:08d}-{self.token}.partial"

    @property
    def final(self) -> Path:
        return self.folder / f"step-{self.step:08d}"

    def find_marker(self, rank: int) -> Path:
        return self.aside / f".part-{rank:04d}.json"

    def mark(self, facts: Mapping[str, Any]) -> None:
        """Writes the marker as the last thing: from then on the primary may rename the folder at any moment."""
        marker = self.find_marker(self.rank)
        partial = marker.with_suffix(".partial")
        partial.write_text(json.dumps(facts), encoding="utf-8")
        partial.replace(marker)
