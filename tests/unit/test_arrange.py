"""Which files belong together, what they are for, and in which languages they are."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from lockstep.data.text.arrange import Arrangement, arrange, choose_languages
from lockstep.data.text.look import read_sample
from lockstep.errors import LockstepError

NOBODY: tuple[None, None] = (None, None)
TEXT = {
    "en": "the man in the blue shirt washes the window of the house\n",
    "fr": "l'homme à la chemise bleue lave la fenêtre de la maison\n",
    "es": "el hombre de la camisa azul lava la ventana de la casa\n",
}


def fill(folder: Path, *names: str) -> Path:
    """Writes a text in the language that each name says."""
    folder.mkdir(exist_ok=True)
    for name in names:
        code = next((code for code in TEXT if f".{code}" in name), "en")
        data = (TEXT[code] * 5).encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def refuse(*places: Path, wanted: tuple[str | None, str | None] = NOBODY) -> str:
    with pytest.raises(LockstepError) as caught:
        arrange(places, wanted)
    return str(caught.value)


def list_roles(arranged: Arrangement) -> list[tuple[str, str]]:
    return [(text.paths[0].name, text.role) for text in arranged.sources]


def test_a_folder_without_training_text_is_refused_and_lonely_files_are_named(tmp_path: Path) -> None:
    folder = fill(tmp_path / "c", "train.en.gz", "dev.en.gz", "test.en.gz", "test.fr.gz")
    message = refuse(folder)
    assert "There is no training text" in message
    assert "train.en.gz is not used: it has no partner: train.fr is missing" in message
    assert "dev.en.gz is not used: it has no partner: dev.fr is missing" in message
    arranged = arrange([fill(folder, "train.fr.gz")], NOBODY)
    assert list_roles(arranged) == [("test.en.gz", "test"), ("train.en.gz", "train")]
    assert arranged.unused == [f"{folder / 'dev.en.gz'} is not used: it has no partner: dev.fr is missing."]


def test_held_out_text_alone_is_never_training_text(tmp_path: Path) -> None:
    folder = fill(tmp_path, "newstest2014.en", "newstest2014.fr")
    assert "There is no training text" in refuse(folder / "newstest2014.en", folder / "newstest2014.fr")


def test_files_of_a_second_folder_that_are_not_used_are_named(tmp_path: Path) -> None:
    first, second = fill(tmp_path / "one", "a.en", "a.fr"), fill(tmp_path / "two", "left.txt", "right.txt")
    arranged = arrange([first, second], NOBODY)
    assert [str(second / name) for name in ("left.txt", "right.txt")] == [note.split()[0] for note in arranged.unused]


def write_catalogue(path: Path, code: str, header: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    sides = [[json.dumps(f"{number} {TEXT[one]}", ensure_ascii=False) for number in range(9)] for one in ("en", code)]
    messages = "".join(f"\nmsgid {source}\nmsgstr {target}\n" for source, target in zip(*sides, strict=True))
    head = f'"{header}\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    path.write_text(f'msgid ""\nmsgstr ""\n{head}{messages}', encoding="utf-8")
    return path


@pytest.mark.parametrize("header", ["Language: {}", "Project: none"])
def test_catalogues_in_other_languages_are_left_out_and_named(tmp_path: Path, header: str) -> None:
    files = [
        write_catalogue(tmp_path / code / "LC_MESSAGES" / "app.po", code, header.format(code)) for code in ("fr", "es")
    ]
    arranged = arrange(files, NOBODY)
    languages = choose_languages(arranged.sources, NOBODY)
    assert languages == ("en", "fr")
    left = arranged.leave_out(languages)
    assert [text.paths[0] for text in left.sources] == files[:1]
    assert left.unused == [f"{files[1]} is not used: its languages are en and es, not en and fr."]


def test_the_only_text_is_kept_even_if_its_names_do_not_fit(tmp_path: Path) -> None:
    arranged = arrange([fill(tmp_path / "c", "a.en", "a.fr")], ("de", "pl"))
    assert arranged.leave_out(("de", "pl")) == arranged


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("ID,Context,English,Español", "- - en es"),
        ("Spanish;en-US", "es en"),
        ("no,text_en,text_es", "- en es"),
        ("English (US),Spanish (Mexico)", "en es"),
        ("id,source,target", "- en es"),
        ("src;tgt", "en es"),
        ("EN,ES,note", "en es -"),
    ],
)
def test_headers_name_languages_in_many_ways(tmp_path: Path, header: str, columns: str) -> None:
    delimiter = ";" if ";" in header else ","
    kinds = columns.split()
    cells = [TEXT[kind].strip() if kind in TEXT else "1" for kind in kinds]
    (tmp_path / "p.csv").write_text(f"{header}\n" + f"{delimiter.join(cells)}\n" * 6, encoding="utf-8")
    (text,) = arrange([tmp_path / "p.csv"], NOBODY).sources
    first, second = text.languages
    assert [first, second] == [kind for kind in kinds if kind in TEXT]
    assert read_sample(text.looks[0], ("en", "es")) == [(TEXT["en"].strip(), TEXT["es"].strip())] * 6


def test_columns_that_cannot_be_chosen_are_listed(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("Key,Before,After\n" + "1,the house,la casa\n" * 9)
    message = refuse(tmp_path / "p.csv", wanted=("en", "es"))
    assert "has 3 columns" in message
    assert "Key, Before, After" in message
    assert "source and target" in message


def test_a_table_with_three_columns_is_refused_with_the_command_that_keeps_two(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("7\tthe house\tla casa\n" * 9 + "no tab\n")
    message = refuse(tmp_path / "p.tsv", wanted=("en", "es"))
    assert "p.tsv has 3 columns instead of two: 7, the house, la casa." in message
    assert f"cut -f 1,2 {tmp_path / 'p.tsv'} > pairs.tsv" in message


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_the_command_that_swaps_columns_makes_the_text_usable(tmp_path: Path, ending: str) -> None:
    data = f"{TEXT['fr'].strip()}\t{TEXT['en']}".encode() * 9
    path = tmp_path / f"p.tsv{ending}"
    path.write_bytes(gzip.compress(data) if ending else data)
    (text,) = arrange([path], ("en", "fr")).sources
    with pytest.raises(LockstepError, match="has fr in its first column and en in its second one") as caught:
        text.put_in_order(("en", "fr"))
    command = caught.value.remedy.removeprefix("Swap the columns: ")
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    (swapped,) = arrange([tmp_path / "swapped.tsv"], ("en", "fr")).sources
    assert swapped.put_in_order(("en", "fr")).languages == ("en", "fr")


def test_binary_files_and_repeated_files_are_called_so(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256)) * 20)
    fill(tmp_path, "a.en", "a.fr")
    assert "p.png is a binary file" in refuse(tmp_path / "p.png", tmp_path / "a.en")
    assert arrange([tmp_path], NOBODY).unused == [f"{tmp_path / 'p.png'} is not used: it is a binary file."]
    assert "a.en is given twice" in refuse(tmp_path / "a.en", tmp_path / "a.en")
