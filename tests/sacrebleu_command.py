"""sacreBLEU's own command, to compare with."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

RESULT = re.compile(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)(?: \(p = ([\d.]+)\))?")


class PairedResult(NamedTuple):
    """What the command prints of one metric of one system: six digits, of the p-value four."""

    score: float
    mean: float
    margin: float
    p_value: float | None


def run_with_confidence(reference: Path, system: Path) -> list[dict[str, Any]]:
    """Returns the JSON of BLEU and chrF with their intervals."""
    return list(json.loads(_run(reference, [system], "--confidence")))


def run_paired(reference: Path, systems: Sequence[Path]) -> list[list[PairedResult]]:
    """Returns BLEU and chrF of each system. Its JSON cannot be used: version 2.6 fails to write chrF."""
    lines = _run(reference, systems, "--paired-bs", "--format", "latex").splitlines()
    rows = [RESULT.findall(line) for line in lines if "±" in line and "CI" not in line]
    return [
        [
            PairedResult(float(score), float(mean), float(margin), float(p) if p else None)
            for score, mean, margin, p in row
        ]
        for row in rows
    ]


def _run(reference: Path, systems: Sequence[Path], *options: str) -> str:
    words = [reference, "-i", *systems, "-m", "bleu", "chrf", *options, "--width", "6"]
    command = [sys.executable, "-m", "sacrebleu", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
