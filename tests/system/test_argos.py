"""The real Argos Translate loads an exported package and translates with it.

Argos Translate wants other versions than Lockstep, so it has an environment of its own, without its heavy extras: stanza is
replaced by an empty module, and each text is one sentence, because its sentence splitters download models.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Tiny, lockstep
from lockstep.translate.load_model import load_translator

pytestmark = pytest.mark.slow
PROGRAM = """
import json, sys
import ctranslate2
from argostranslate import package, translate

class OneSentence:
    def split_sentences(self, text):
        return [text]

package.install_from_path(sys.argv[1])
(installed,) = package.get_installed_packages()
model = ctranslate2.Translator(str(installed.package_path / "model"))
texts = json.load(sys.stdin)
results = [translate.apply_packaged_translation(installed, text, model, OneSentence()) for text in texts]
print(json.dumps([installed.from_code, installed.to_name, [result[0].value for result in results]]))
"""


@pytest.fixture(scope="module")
def argos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with Argos Translate."""
    folder = tmp_path_factory.mktemp("argos") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    needed = ["ctranslate2>=4.8,<5", "sentencepiece<0.3", "packaging", "minisbd"]
    for words in (["--no-deps", "argostranslate==1.11.0"], needed):
        result = subprocess.run([*install, *words], capture_output=True, text=True, check=False)
        if result.returncode:
            pytest.skip(f"Argos Translate cannot be installed here: {result.stderr.strip().splitlines()[-1]}")
    (library,) = (folder / "lib").glob("python*/site-packages")
    (library / "stanza.py").touch()
    return folder / "bin" / "python"


def test_argos_translate_gives_the_translations_of_lockstep(
    argos: Path, trained: Path, tiny: Tiny, tmp_path: Path
) -> None:
    texts = (tiny.folder / "test.en").read_text().splitlines()
    lockstep("export", trained, "--to", tmp_path / "en_de.argosmodel", "--format", "argos")
    environment = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "PATH": "/usr/bin:/bin"}
    result = subprocess.run(
        [argos, "-c", PROGRAM, tmp_path / "en_de.argosmodel"],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    source, target, translations = json.loads(result.stdout.splitlines()[-1])
    assert (source, target) == ("en", "German")
    # Argos Translate searches with a beam of 4 and a length penalty of 0.2.
    ours = load_translator(trained, search={"beam": 4, "length_penalty": 0.2}).translate(texts)
    assert sum(a.strip() == b for a, b in zip(translations, ours, strict=True)) >= len(texts) - 1
