"""Making a corpus from pieces: archives, test sets, help pages, images."""

import gzip
import io
import json
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest
import zstandard
from PIL import Image

from lockstep.data.catalog.entries import CatalogEntry, load
from lockstep.data.catalog.recipes import help_pages, image_archives, pairs
from lockstep.data.catalog.recipes.archive import read_archive
from lockstep.errors import LockstepError


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def deb(files: dict[str, bytes], name: str = "data.tar.xz") -> bytes:
    """A Debian package with this file tree."""
    data = lzma.compress(tar(files)) if name.endswith("xz") else zstandard.compress(tar(files))
    members = {"debian-binary": b"2.0\n", "control.tar.xz": lzma.compress(tar({"./control": b"odd"})), name: data}
    package = b"!<arch>\n"
    for member, content in members.items():
        package += f"{member:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        package += content + b"\n" * (len(content) % 2)
    return package


def read_all(path: Path) -> dict[str, bytes]:
    return {name: content.read() for name, content in read_archive(path)}


def text_entry(sets: dict[str, object], *names: str) -> CatalogEntry:
    tree = load()["wmt16-en-de"].model_dump(mode="json") | {
        "pieces": {name: {"sources": [f"http://a/{name}"]} for name in names},
        "sets": sets,
    }
    return CatalogEntry.model_validate(tree)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, zstandard.compress, bytes])
def test_archives_are_read_with_any_compression(tmp_path: Path, compress: object) -> None:
    assert callable(compress)
    path = tmp_path / "archive"
    path.write_bytes(compress(tar({"./a/b.txt": b"hello", "c": b""})))
    assert read_all(path) == {"a/b.txt": b"hello", "c": b""}


@pytest.mark.parametrize("name", ["data.tar.xz", "data.tar.zst"])
def test_debian_packages_are_read_without_dpkg(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.deb"
    path.write_bytes(deb({"./usr/share/a": b"hello"}, name))
    assert read_all(path) == {"usr/share/a": b"hello"}


@pytest.mark.parametrize("size", ["x", "-60", ""])
def test_a_package_with_an_impossible_size_is_damaged(tmp_path: Path, size: str) -> None:
    path = tmp_path / "a.deb"
    path.write_bytes(b"!<arch>\n" + f"{'debian-binary':<48}{size:<10}`\n".encode() + b"2.0\n")
    with pytest.raises(LockstepError, match="is damaged or cut off"):
        read_all(path)


@pytest.mark.parametrize("kind", ["tgz", "deb"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_archive_is_named(tmp_path: Path, kind: str, share: float) -> None:
    files = {f"{number}": np.random.default_rng(number).bytes(20_000) for number in range(3)}
    intact = gzip.compress(tar(files)) if kind == "tgz" else deb(files)
    path = tmp_path / f"archive.{kind}"
    path.write_bytes(intact[: int(len(intact) * share)])
    with pytest.raises(LockstepError, match="archive.* is damaged or cut off"):
        read_all(path)


def test_parts_are_concatenated_in_order(tmp_path: Path) -> None:
    """Line separators other than the line feed stay inside their line; a missing last line feed is added."""
    (tmp_path / "a").write_bytes(gzip.compress(tar({"x/a.de": b"eins\nzwei", "x/a.en": b"one\ntwo\xe2\x80\xa8\n"})))
    (tmp_path / "b.en").write_bytes(b"three\n")
    (tmp_path / "b.de").write_bytes(gzip.compress(b"drei\n"))
    parts = [{"piece": "a", "files": ["a.en", "a.de"]}, {"pieces": ["b.en", "b.de"]}]
    entry = text_entry({"train": parts, "validation": parts[1:]}, "a", "b.en", "b.de")
    counts = pairs.make_pairs(entry, {name: tmp_path / name for name in entry.pieces}, tmp_path)
    assert counts == {"train": 3, "validation": 1}
    assert (tmp_path / "train.en").read_bytes() == b"one\ntwo\xe2\x80\xa8\nthree\n"
    assert (tmp_path / "train.de").read_bytes() == b"eins\nzwei\ndrei\n"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.en": b"1\n2\n", "a.de": b"1\n"}, "a.en has 2 lines but a.de has 1"),
        ({"a.en": b"1\n"}, "holds no file a.de"),
    ],
)
def test_sides_with_different_line_counts_are_refused(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    (tmp_path / "a").write_bytes(tar(files))
    part = [{"piece": "a", "files": ["a.en", "a.de"]}]
    entry = text_entry({"train": part, "validation": part}, "a")
    with pytest.raises(LockstepError, match=message):
        pairs.make_pairs(entry, {"a": tmp_path / "a"}, tmp_path)


SGM = """<srcset setid="newstest2013" srclang="any">
<doc sysid="ref" docid="a" genre="news" origlang="en">
<p>
<seg id="1">Tom &amp; Jerry  said: "1 < 2".</seg>
<seg id="2"> Second.\u00a0 </seg>
</p>
</doc>
"""


def test_test_sets_are_read_as_sacrebleu_reads_them(tmp_path: Path) -> None:
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    (tmp_path / "a.sgm").write_text(SGM, encoding="utf-8")
    FakeSGMLDataset("wmt13")._convert_format(str(tmp_path / "a.sgm"), str(tmp_path / "theirs"))  # type: ignore[no-untyped-call]
    (tmp_path / "a").write_bytes(tar({"test/a.sgm": SGM.encode(), "test/b.sgm": SGM.encode()}))
    part = [{"piece": "a", "files": ["a.sgm", "b.sgm"]}]
    entry = text_entry({"train": part, "validation": part}, "a")
    assert pairs.make_pairs(entry, {"a": tmp_path / "a"}, tmp_path) == {"train": 2, "validation": 2}
    assert (tmp_path / "validation.en").read_bytes() == (tmp_path / "theirs").read_bytes()


def page(*paragraphs: str) -> str:
    return '<html><body><div id="DisplayArea">' + "\n".join(paragraphs) + "</div></body></html>"


def paragraph(number: int, html: str, kind: str = "paragraph") -> str:
    return f'<p id="par_id{number}" class="{kind}" dir="auto">{html}</p>'


SWITCH = (
    'Choose <span id="s" class="switchinline"><span hidden="true" id="MACx" class="MAC"><span class="emph">{}</span>'
    '</span> <span hidden="true" id="defaultx"><span class="emph">{}</span></span></span> - Colours.'
)


@pytest.mark.parametrize(
    ("english", "german", "expected"),
    [
        (
            "Click <b>here</b> &amp; wait. Then go on.",
            "Klicken Sie <i>hier</i> &amp; warten. Gehen Sie weiter.",
            [("Click here & wait.", "Klicken Sie hier & warten."), ("Then go on.", "Gehen Sie weiter.")],
        ),
        (
            "Use it, e.g. Here or there. It works.",
            "Nutzen Sie es hier oder dort, denn es tut seinen Dienst.",
            [("Use it, e.g. Here or there. It works.", "Nutzen Sie es hier oder dort, denn es tut seinen Dienst.")],
        ),
        (
            SWITCH.format("Preferences", "Options"),
            SWITCH.format("Einstellungen", "Optionen").replace("Choose", "Wählen Sie").replace("Colours", "Farben"),
            [("Choose Options - Colours.", "Wählen Sie Optionen - Farben.")],
        ),
        ("Line one<br/>goes on", "Zeile eins<br/>geht weiter", [("Line one goes on", "Zeile eins geht weiter")]),
        ("The same text", "The same text", []),
        ("Bold", "Fett", []),
        ("Pages 1 to 3 are kept", "Seite 1 bis 4 bleibt erhalten", []),
        ("<span class='literal'>SUM(Number one)</span>", "<span class='literal'>SUMME(Zahl eins)</span>", []),
        ("=ISNUMBER(A1;B2;C3) is true", "=ISTZAHL(A1;B2;C3) ist wahr", []),
        ("Opens the page for you and your cat", "Opens the page for you, und die Katze", []),
    ],
)
def test_help_paragraphs_become_sentence_pairs(english: str, german: str, expected: list[tuple[str, str]]) -> None:
    assert list(help_pages.pair_pages(page(paragraph(1, english)), page(paragraph(1, german)))) == expected


def test_help_paragraphs_are_paired_by_their_id() -> None:
    english = page(paragraph(1, "First of all"), paragraph(2, "Second of all"), paragraph(3, "x = open it", "code"))
    german = page(paragraph(2, "Als Zweites"), paragraph(3, "x = auf damit", "code"), paragraph(1, "Als Erstes"))
    sentence_pairs = list(help_pages.pair_pages(english, german))
    assert sentence_pairs == [("First of all", "Als Erstes"), ("Second of all", "Als Zweites")]


def test_no_sentence_is_in_two_sets() -> None:
    """Pages repeat each other's paragraphs; what is held out must not be trained on."""
    shared = "This paragraph is on every page.", "Dieser Absatz steht auf jeder Seite."
    english, german = {}, {}
    for number in range(400):
        own = f"Page {number} has words of its own.", f"Seite {number} hat eigene Wörter."
        name = f"text/{number}.html"
        english[name], german[name] = (page(paragraph(1, shared[i]), paragraph(2, own[i])) for i in (0, 1))
    sets = help_pages.split(english, german)
    assert all(sets.values())
    assert sum(len(part) for part in sets.values()) == 401
    assert sum(shared in part for part in sets.values()) == 1
    assert shared not in sets["train"]
    assert help_pages.split(english, german) == sets


def test_cifar_batches_are_rebuilt_from_png_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the PNG file is one image; a record is the label and then the three planes."""
    monkeypatch.setattr(image_archives, "BATCH_IMAGES", 4)
    draw = np.random.default_rng(1)
    expected, files = {}, {}
    for name in image_archives.BATCHES:
        records = draw.integers(0, 256, (4, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        expected[name] = records
        pixels = records[:, 1:].reshape(4, 3, 1024).transpose(0, 2, 1)
        buffer = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "png")
        files[f"package/{name}.png"] = buffer.getvalue()
    labels = np.concatenate([expected[name][:, 0] for name in image_archives.BATCHES]).tolist()
    files["package/train_lables.json"] = json.dumps(labels[:20]).encode()
    files["package/test_lables.json"] = json.dumps(labels[20:]).encode()
    (tmp_path / "a.tgz").write_bytes(gzip.compress(tar(files)))
    assert image_archives.make_cifar10(load()["cifar10"], {"images": tmp_path / "a.tgz"}, tmp_path) == {
        "train": 20,
        "test": 4,
    }
    for name, records in expected.items():
        assert (tmp_path / f"{name}.bin").read_bytes() == records.tobytes()


def test_official_cifar_batches_are_copied(tmp_path: Path) -> None:
    files = {f"cifar-10-batches-bin/{name}.bin": name.encode() * 3073 for name in image_archives.BATCHES}
    (tmp_path / "a.tgz").write_bytes(gzip.compress(tar(files)))
    image_archives.make_cifar10(load()["cifar10"], {"images": tmp_path / "a.tgz"}, tmp_path)
    assert (tmp_path / "test_batch.bin").read_bytes() == b"test_batch" * 3073
    (tmp_path / "b.tgz").write_bytes(gzip.compress(tar({"a": b""})))
    (tmp_path / "empty").mkdir()
    with pytest.raises(LockstepError, match="holds no data_batch_1"):
        image_archives.make_cifar10(load()["cifar10"], {"images": tmp_path / "b.tgz"}, tmp_path / "empty")


def idx(count: int, sizes: tuple[int, ...]) -> bytes:
    header = bytes([0, 0, 8, 1 + len(sizes)]) + b"".join(size.to_bytes(4) for size in (count, *sizes))
    return header + bytes(count * int(np.prod(sizes)))


def test_idx_files_are_unpacked_and_counted(tmp_path: Path) -> None:
    files = {
        f"usr/share/{kind}-{what}-ubyte.gz": gzip.compress(idx(count, sizes))
        for kind, count in {"train": 3, "t10k": 2}.items()
        for what, sizes in {"images-idx3": (28, 28), "labels-idx1": ()}.items()
    }
    (tmp_path / "a.deb").write_bytes(deb(files))
    assert image_archives.make_idx(load()["fashion-mnist"], {"images": tmp_path / "a.deb"}, tmp_path) == {
        "train": 3,
        "test": 2,
    }
    assert (tmp_path / "train-images-idx3-ubyte").read_bytes() == idx(3, (28, 28))
    files["usr/share/t10k-labels-idx1-ubyte.gz"] = gzip.compress(idx(1, ()))
    (tmp_path / "a.deb").write_bytes(deb(files))
    with pytest.raises(LockstepError, match="2 test images but 1 labels"):
        image_archives.make_idx(load()["fashion-mnist"], {"images": tmp_path / "a.deb"}, tmp_path)
