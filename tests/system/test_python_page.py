"""docs/use/python.md: every example on it runs; and importing the package imports nothing large."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from conftest import Tiny, lockstep

PAGE = Path(__file__).parents[2] / "docs" / "use" / "python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
HEAVY = [
    "torch",
    "numpy",
    "pydantic",
    "rich",
    "typer",
    "sentencepiece",
    "ctranslate2",
    "onnxruntime",
    "sacrebleu",
    "yaml",
]


@pytest.fixture(scope="module")
def folder(trained: Path, export_folder: Path, tiny_images: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page assumes: two runs, an export and two image files."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(trained, folder / "runs" / "demo")
    shutil.copytree(export_folder, folder / "models" / "demo")
    lockstep("train", tiny_images.config, "--workers", 1, "--run", folder / "runs" / "images")
    for name, shade in (("photo", 40), ("other", 200)):
        Image.new("RGB", (60, 40), (shade,) * 3).save(folder / f"{name}.png")
    return folder


def test_every_example_of_the_page_runs(folder: Path) -> None:
    assert len(EXAMPLES) >= 8
    result = subprocess.run(
        [sys.executable, "-c", "\n".join(EXAMPLES)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    for expected in ("transformer, en to de", "demo", "images", "finished", "BLEU", "There is no folder runs/none."):
        assert expected in result.stdout
    assert (folder / "demo.html").stat().st_size > 100_000


def test_importing_the_package_imports_nothing_large() -> None:
    program = f"import sys, lockstep\nprint([name for name in {HEAVY} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_an_export_is_used_without_torch(folder: Path) -> None:
    program = """
import sys
sys.modules["torch"] = None
import lockstep
model = lockstep.load("models/demo")
print(model.info.kind, len(model.translate(["ba de", "ga"], n_best=2)))
print(model.score(["ba de ga ki"], ["Ki Ga De Ba"]).bleu >= 0.0)
print(len(lockstep.runs()), len(lockstep.report("runs/demo")))
try:
    lockstep.load("runs/demo")
except lockstep.LockstepError as error:
    print(error.remedy)
"""
    result = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "ctranslate2 2",
        "True",
        "2 11",
        "Install it: pip install 'lockstep-train[train]'",
    ]
