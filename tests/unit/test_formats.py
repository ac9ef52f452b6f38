"""Translation memories and gettext catalogues."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.data.data_settings import DataSettings
from lockstep.data.text import compressed, parallel_text
from lockstep.data.text.languages import matches_language
from lockstep.errors import LockstepError

TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><note>ignored</note>
  <tuv xml:lang="en-US"><seg>Press <bpt i="1">&lt;b&gt;</bpt>OK<ept i="1">&lt;/b&gt;</ept> &amp;
   wait.</seg></tuv>
  <tuv xml:lang="fr"><seg>Attendez.</seg></tuv>
  <tuv xml:lang="DE_ch"><seg>Drücken Sie <hi>OK</hi>.</seg></tuv>
  <tuv xml:lang="de-DE"><seg>Zweite Wahl.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Only English.</seg></tuv><tuv xml:lang="fr"><seg>Rien.</seg></tuv></tu>
<tu><tuv lang="de"><seg>Alt.</seg></tuv><tuv lang="EN"><seg>Old.</seg></tuv></tu>
</body></tmx>
"""
PO = r"""# a comment
msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset=UTF-8\n"

#: main.c:5
msgctxt "menu"
msgid "Open \"%s\"\n"
"now"
msgstr "Jetzt „%s“ "
"öffnen"

#, fuzzy, c-format
msgid "Guess"
msgstr "Vermutung"

msgid "Untranslated"
msgstr ""
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"
#~ msgid "Gone"
#~ msgstr "Weg"
#| msgid "Bey"
msgid "Bye\x21\041"
msgstr "Tschüss!!"
"""
PAIRS = [('Open "%s" now', "Jetzt „%s“ öffnen"), ("%d file", "%d Datei"), ("Bye!!", "Tschüss!!")]


def pairs(path: Path, *languages: str) -> list[tuple[str, str]]:
    values = {"languages": languages or ("en", "de"), "folder": path.parent, "train": ["x"], "validation": ["x"]}
    blocks = parallel_text.read_file_blocks(DataSettings.model_validate(values), path.name, lines=2)
    return [pair for block in blocks for pair in block.pairs()]


def error(path: Path, *languages: str) -> str:
    with pytest.raises(LockstepError) as caught:
        pairs(path, *languages)
    assert caught.value.remedy
    assert str(path) in caught.value.message
    return caught.value.message


def compiled(messages: dict[str, str], order: str = "<") -> bytes:
    """Returns what msgfmt writes: a header, two tables, the texts."""
    tables, body, start = [b"", b""], b"", 28 + 16 * len(messages)
    for message, translation in messages.items():
        for side, value in enumerate((message.encode(), translation.encode())):
            tables[side] += struct.pack(f"{order}2I", len(value), start + len(body))
            body += value + b"\0"
    header = struct.pack(f"{order}7I", 0x950412DE, 0, len(messages), 28, 28 + 8 * len(messages), 0, 0)
    return header + tables[0] + tables[1] + body


@pytest.fixture
def tmx(tmp_path: Path) -> Path:
    (tmp_path / "memory.tmx").write_text(TMX)
    return tmp_path / "memory.tmx"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("<ph>&lt;br/&gt;</ph>", "One two"),
        ('<it pos="end">&lt;/p&gt;</it>', "One two"),
        (r"<ph>\n</ph>", "One two"),
        ('<bpt i="1">&lt;b&gt;</bpt>', "Onetwo"),
        ("<ph>&lt;img src='a.png'&gt;</ph>", "Onetwo"),
        ("<ph>{1}</ph>", "Onetwo"),
    ],
)
def test_a_code_for_a_break_separates_words_in_a_tmx(tmp_path: Path, code: str, text: str) -> None:
    unit = f'<tu><tuv xml:lang="en"><seg>One{code}two</seg></tuv><tuv xml:lang="de"><seg>eins</seg></tuv></tu>'
    path = tmp_path / "m.tmx"
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{unit}</body></tmx>')
    assert pairs(path) == [(text, "eins")]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_memory_gives_the_units_that_have_both_languages(
    tmx: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "BLOCK_BYTES", size)
    assert pairs(tmx) == [("Press OK & wait.", "Drücken Sie OK."), ("Old.", "Alt.")]
    assert pairs(tmx, "de", "en")[1] == ("Alt.", "Old.")
    assert pairs(tmx, "en", "fr") == [("Press OK & wait.", "Attendez."), ("Only English.", "Rien.")]
    assert pairs(tmx, "en-US", "de-DE") == [("Press OK & wait.", "Zweite Wahl.")]


def test_a_memory_may_be_compressed_and_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "memory.tmx.gz").write_bytes(gzip.compress(TMX.replace("UTF-8", "UTF-16").encode("utf-16")))
    assert pairs(tmp_path / "memory.tmx.gz")[0] == ("Press OK & wait.", "Drücken Sie OK.")


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        (lambda data: data.replace(b"</hi>", b"</h>"), "line 8, column"),
        (lambda data: data[: data.index(b"Only")], "line 10, column"),
        (lambda data: data.replace(b"Old", b"\xe4"), "line 11, column"),
        (lambda data: b"", "line 1, column 1"),
        (lambda data: data.replace(b"UTF-8", b"KLINGON"), "line 1"),
    ],
)
def test_a_broken_memory_names_file_line_and_column(tmx: Path, spoil: Callable[[bytes], bytes], place: str) -> None:
    tmx.write_bytes(spoil(TMX.encode()))
    assert f"is not well-formed XML at {place}" in error(tmx)


def test_a_memory_without_the_languages_says_what_it_has(tmx: Path) -> None:
    assert error(tmx, "en", "it").endswith(
        "has no unit with both en and it: it has DE_ch, EN, de, de-DE, en, en-US, fr."
    )


@pytest.mark.parametrize(
    ("wanted", "code", "matches"),
    [
        ("en", "en-US", True),
        ("EN", "en_gb", True),
        ("pt-BR", "pt-PT", False),
        ("pt-BR", "pt", False),
        ("e", "en", False),
    ],
)
def test_a_language_matches_its_regions(wanted: str, code: str, matches: bool) -> None:
    assert matches_language(wanted, code) is matches


def test_a_catalogue_gives_translated_messages_that_are_not_fuzzy_or_obsolete(tmp_path: Path) -> None:
    (tmp_path / "app.po").write_text(PO)
    assert pairs(tmp_path / "app.po") == PAIRS
    assert pairs(tmp_path / "app.po", "de", "en") == [(target, source) for source, target in PAIRS]
    (tmp_path / "old.po").write_bytes(PO.replace("UTF-8", "ISO-8859-1").replace("„%s“", "%s").encode("latin-1"))
    assert pairs(tmp_path / "old.po")[2] == PAIRS[2]


@pytest.mark.parametrize("order", "<>")
def test_a_compiled_catalogue_gives_the_same(tmp_path: Path, order: str) -> None:
    header = "Language: de\nContent-Type: text/plain; charset=UTF-8\n"
    messages = {"": header, "menu\x04Open": "Öffnen", "%d file\0%d files": "%d Datei\0%d Dateien", "No": ""}
    (tmp_path / "app.mo").write_bytes(compiled(messages, order))
    assert pairs(tmp_path / "app.mo") == [("Open", "Öffnen"), ("%d file", "%d Datei")]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (PO.replace('msgid "Untranslated"', "msgid Untranslated").encode(), "Line 18 of"),
        (PO.encode() + b"garbage\n", "Line 29 of"),
        (PO.encode().replace("Tschüss".encode(), b"Tsch\xfcss"), "Line 28 of"),
        (PO.replace("UTF-8", "KLINGON").encode(), "unknown encoding KLINGON"),
    ],
)
def test_a_broken_catalogue_names_file_and_line(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "app.po").write_bytes(content)
    assert says in error(tmp_path / "app.po")


def test_a_broken_compiled_catalogue_is_named(tmp_path: Path) -> None:
    path, intact = tmp_path / "app.mo", compiled({"": "charset=UTF-8", "Open": "Öffnen"})
    for size in (10, 40, len(intact) - 2):
        path.write_bytes(intact[:size])
        assert f"is cut off after {size} bytes" in error(path)
    path.write_bytes(intact.replace("Ö".encode(), b"\xff\xff"))
    assert "Message 2 of" in error(path)
    path.write_text("msgid")
    assert "not a compiled gettext catalogue" in error(path)
