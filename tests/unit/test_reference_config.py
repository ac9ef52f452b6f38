"""configs/reference.yaml is what scripts/make-reference writes, and sets nothing but defaults."""

import subprocess
import sys
from pathlib import Path

import yaml

from lockstep.config import list_fields, load
from lockstep.settings import flat

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "configs" / "reference.yaml"


def test_the_reference_is_what_the_script_writes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "scripts" / "make-reference", tmp_path / "reference.yaml"], check=True)
    written = (tmp_path / "reference.yaml").read_text(encoding="utf-8")
    assert REFERENCE.read_text(encoding="utf-8") == written, "run scripts/make-reference"


def test_the_reference_names_every_setting() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    assert all(f" {name.rpartition('.')[2]}:" in text.replace("\n", " ") for name, _ in list_fields())


def test_what_the_reference_sets_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "least.yaml").write_text("data: {train: [train], validation: [validation]}\nbatch: {words: 4096}\n")
    least = load(tmp_path / "least.yaml", [])
    assert load(REFERENCE, []) == least
    assert flat(yaml.safe_load(REFERENCE.read_text(encoding="utf-8"))) == flat(least.model_dump(mode="json"))
