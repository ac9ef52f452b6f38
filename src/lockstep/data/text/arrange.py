"""Finds out what text files are: which belong together, their languages, and which are for validation or test."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lockstep.data.text import csv_table
from lockstep.data.text.compressed import strip_compression
from lockstep.data.text.file_names import SetName, find_roles, replace_language, split_language
from lockstep.data.text.find_files import Format
from lockstep.data.text.identify import identify_language
from lockstep.data.text.languages import matches_language
from lockstep.data.text.look import FileLook, look, read_sample, read_sample_lines
from lockstep.errors import LockstepError

_FEWEST_SENTENCES = 0.2
"""At least this share of the sentences must look like the language of the text."""
_SHOWN_UNUSED, _SHOWN_CHARACTERS = 5, 30
UNPACK = {".gz": "zcat", ".xz": "xzcat", ".zst": "zstdcat", ".bz2": "bzcat"}
"""Programs that write a compressed file unpacked, by its ending."""
_IGNORED = re.compile(
    r"(readme|licen[cs]e|copying|changelog).*|.*\.(yaml|yml|json|jsonl|md|html|pdf|py|sh|log|model|lock)"
)


@dataclass(frozen=True)
class TextSource:
    """Two files with a sentence per line, or one file that holds both languages."""

    format: Format
    paths: tuple[Path, ...]
    languages: tuple[str | None, str | None]
    """The languages in the order of the files or of the columns; None if one cannot be recognized."""
    role: SetName
    looks: tuple[FileLook, ...]

    def fits(self, languages: tuple[str, str]) -> bool:
        """False if the names of the files, or what is in them, say that the text is in other languages."""
        if self.format in ("po", "mo"):
            target = self.looks[0].languages[0] if self.looks[0].languages else None
            return target is None or any(matches_language(one, _dash(target)) for one in languages)
        if self.format == "lines":
            named = [code for path in self.paths if (code := split_language(path)[1]) is not None]
        else:
            named = list(self.looks[0].languages)
        return len(named) < 2 or all(any(matches_language(want, code) for code in named) for want in languages)

    @property
    def is_ordered_by_name(self) -> bool:
        """Does the reader find both languages by their names? Else the first file or column is the source."""
        return self.format in ("tmx", "po", "mo") or bool(self.format == "csv" and self.looks[0].languages)

    def put_in_order(self, languages: tuple[str, str]) -> "TextSource":
        """The same text with the source first. Columns without names cannot change their places."""
        reverse = languages[::-1]
        sides = zip(reverse, self.languages, strict=True)
        is_reverse = all(one is not None and matches_language(want, one) for want, one in sides)
        if not is_reverse or self.is_ordered_by_name:
            return self
        if self.format != "lines":
            first, second = self.languages
            raise LockstepError(
                f"{self.paths[0]} has {first} in its first column and {second} in its second one, and the first column "
                "must be the source.",
                self._advise_swapping(),
                code=2,
            )
        return replace(self, paths=self.paths[::-1], languages=self.languages[::-1], looks=self.looks[::-1])

    def _advise_swapping(self) -> str:
        """Returns how a table gets its columns in the other order."""
        if self.format == "csv":
            return f"Name the columns in a first row: {self.languages[0]},{self.languages[1]}."
        (look,), path = self.looks, self.paths[0]
        read = f"{UNPACK[look.compression]} {path} | " if look.compression else ""
        swap = "awk -F '\\t' -v OFS='\\t' '{print $2, $1}'"
        return f"Swap the columns: {read}{swap}{'' if read else f' {path}'} > swapped.tsv"


@dataclass(frozen=True)
class Arrangement:
    """The texts in some files, and a sentence on every file that is not used."""

    sources: list[TextSource]
    unused: list[str]

    def leave_out(self, languages: tuple[str, str]) -> "Arrangement":
        """Leaves out texts that name other languages than the chosen ones, unless no training text would be left."""
        fitting = [text for text in self.sources if text.fits(languages)]
        if all(text.role != "train" for text in fitting):
            return self
        others = [text for text in self.sources if not text.fits(languages)]
        notes = [
            f"{' and '.join(map(str, text.paths))} is not used: its languages are {text.languages[0] or 'unknown'} and "
            f"{text.languages[1] or 'unknown'}, not {languages[0]} and {languages[1]}."
            for text in others
        ]
        return Arrangement(fitting, [*self.unused, *notes])


def arrange(places: Sequence[Path], wanted: tuple[str | None, str | None]) -> Arrangement:
    """Arranges the files, and the files in the folders. `wanted` are the languages that the user named."""
    all_looks = [look(path) for path in _expand(places)]
    looks = [one for one in all_looks if one.is_text]
    unused = [f"{one.path} is not used: it is a binary file." for one in all_looks if not one.is_text]
    if given := next((one.path for one in all_looks if not one.is_text and one.path in places), None):
        raise LockstepError(f"{given} is a binary file, not text.", "Give text files, or a folder of them.", code=2)
    sources: list[tuple[FileLook, ...]] = [(one,) for one in looks if one.format != "lines"]
    lines = [one for one in looks if one.format == "lines"]
    sources += _pair(lines, wanted, any(place.is_dir() for place in places))
    unused += _explain_unused(lines, sources, wanted)
    if not sources:
        raise LockstepError(
            " ".join([f"There is no parallel text in {', '.join(map(str, places))}.", *unused[:_SHOWN_UNUSED]]),
            "Give two files with a sentence per line, or one .tsv, .csv, .tmx, .po or .mo file.",
            code=2,
        )
    roles = find_roles([one[0].path for one in sources])
    if "train" not in roles:
        names = ", ".join(str(file.path) for one in sources for file in one)
        raise LockstepError(
            " ".join([f"There is no training text, only test or validation text: {names}.", *unused[:_SHOWN_UNUSED]]),
            "Give the training text too. If this is the training text, give its files other names, such as train.",
            code=2,
        )
    texts = [
        TextSource(one[0].format, tuple(file.path for file in one), _find_languages(one, wanted), role, one)
        for one, role in zip(sources, roles, strict=True)
    ]
    return Arrangement(texts, unused)


def _explain_unused(
    looks: Sequence[FileLook], sources: Sequence[tuple[FileLook, ...]], wanted: tuple[str | None, str | None]
) -> list[str]:
    """A sentence on every file with a sentence per line that belongs to no text."""
    used = {one.path for source in sources for one in source}
    known = {split_language(path)[1] for path in used} | set(wanted)
    notes = []
    for path in (one.path for one in looks if one.path not in used):
        _, code = split_language(path)
        others = sorted(other for other in known if other not in (None, code))
        if code is None:
            why = "its name does not say its language; name it like news.en"
        elif wanted[0] and wanted[1] and code not in wanted:
            why = f"it is {code}"
        elif len(others) == 1:
            why = f"it has no partner: {replace_language(path, others[0])} is missing"
        else:
            why = "it has no partner: no other file has the same name with another language"
        notes.append(f"{path} is not used: {why}.")
    return notes


def check_encoding(file: FileLook) -> None:
    """Raises an error if the file is in another encoding than UTF-8 or UTF-16. It names the likely encoding."""
    if file.is_readable:
        return
    name = "WINDOWS-1252" if file.encoding is None else file.encoding.replace("cp", "WINDOWS-").upper()
    guess = "" if file.encoding is None else f" It looks like {name}, which is only a guess."
    new = f"converted{''.join(file.path.suffixes[-2:] if file.compression else file.path.suffixes[-1:]) or '.txt'}"
    unpack = UNPACK.get(file.compression or "")
    command = f"iconv -f {name} -t UTF-8 {file.path} > {new}"
    if unpack is not None:
        command = f"{unpack} {file.path} | iconv -f {name} -t UTF-8 > {new.removesuffix(file.compression or '')}"
    raise LockstepError(f"{file.path} is not UTF-8.{guess}", f"Convert it, for example: {command}", code=2)


def choose_languages(sources: Sequence[TextSource], wanted: tuple[str | None, str | None]) -> tuple[str, str]:
    """The source and the target language: those that the user named, else those of the first training text."""
    text = next((one for one in sources if one.role == "train"), sources[0])
    source, target = wanted
    first, second = text.languages
    if source is not None and target is None:
        target = first if second is not None and matches_language(source, second) else second
    elif target is not None and source is None:
        source = second if first is not None and matches_language(target, first) else first
    elif source is None:
        source, target = first, second
    names = " and ".join(map(str, text.paths))
    example = "Name both with --source and --target, for example: --source en --target de."
    if source is None or target is None:
        which = "source" if source is None else "target"
        raise LockstepError(f"The {which} language of {names} cannot be recognized.", example, code=2)
    if source == target:
        raise LockstepError(f"Both sides of {names} seem to be in the language {source}.", example, code=2)
    return source, target


def _expand(places: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for number, place in enumerate(places):
        if place in places[:number]:
            raise LockstepError(f"{place} is given twice.", "Give each file once.", code=2)
        try:
            inside = sorted(place.iterdir()) if place.is_dir() else [place]
        except OSError as error:
            raise LockstepError(f"{place} cannot be read: {error.strerror}.", "Check the path.", code=2) from None
        if place.is_dir():
            inside = [path for path in inside if path.is_file() and not _is_ignored(path)]
        elif not place.is_file():
            what = "is not a regular file" if place.exists() else "does not exist"
            raise LockstepError(f"{place} {what}.", "Give text files, or a folder of text files.", code=2)
        files += [path for path in inside if path not in files]
    return files


def _is_ignored(path: Path) -> bool:
    return path.name.startswith(".") or _IGNORED.fullmatch(strip_compression(path.name).lower()) is not None


def _pair(
    looks: Sequence[FileLook], wanted: tuple[str | None, str | None], has_folder: bool
) -> list[tuple[FileLook, ...]]:
    """Pairs files with a sentence per line: the only two, or those whose names differ only in the language."""
    if len(looks) == 2 and not has_folder:
        return [tuple(looks)]
    groups: dict[str, list[tuple[str, FileLook]]] = {}
    for one in looks:
        key, language = split_language(one.path)
        if language is not None:
            groups.setdefault(key, []).append((language, one))
        elif not has_folder:
            raise _unclear_error(looks)
    pairs = []
    for members in groups.values():
        if len(members) > 2 and all(wanted):
            members = [(code, one) for code, one in members if code in wanted]
        if len(members) > 2:
            codes = ", ".join(code for code, _ in members)
            remedy = "Choose two with --source and --target, for example: --source en --target de."
            raise LockstepError(f"{members[0][1].path} exists in several languages: {codes}.", remedy, code=2)
        if len(members) == 2:
            pairs.append(tuple(one for _, one in members))
        elif not has_folder:
            raise _unclear_error(looks)
    if not pairs and len(looks) == 2:
        return [tuple(looks)]
    return pairs


def _unclear_error(looks: Sequence[FileLook]) -> LockstepError:
    names = ", ".join(str(one.path) for one in looks)
    if len(looks) == 1:
        message = f"{names} has one sentence per line and no translations."
        return LockstepError(message, "Give the file with the translations as well.", code=2)
    return LockstepError(
        f"It is not clear which of these files are translations of each other: {names}.",
        "Give two of them, or name them after their languages, as in news.en and news.de.",
        code=2,
    )


def _find_languages(
    looks: tuple[FileLook, ...], wanted: tuple[str | None, str | None]
) -> tuple[str | None, str | None]:
    """The languages of a text, from the names of its files, from what the file says, or from its sentences."""
    if len(looks) == 2:
        first, second = (split_language(one.path)[1] or identify(read_sample_lines(one.path)) for one in looks)
        return first, second
    (one,) = looks
    if one.format in ("po", "mo"):
        target = _shorten(one.languages[0]) if one.languages else None
        pairs = read_sample(one, ("und", target or "und"))
        return identify([source for source, _ in pairs]), target or identify([text for _, text in pairs])
    codes = list(one.languages)
    if len(codes) > 2 and all(wanted):
        codes = [code for want in wanted for code in codes if want and matches_language(want, code)][:2]
    if len(codes) > 2:
        remedy = "Choose two of them with --source and --target."
        raise LockstepError(f"{one.path} has several languages: {', '.join(codes)}.", remedy, code=2)
    if len(codes) == 2:
        short = _shorten(codes[0]), _shorten(codes[1])
        return short if short[0] != short[1] else (codes[0], codes[1])
    if one.format == "csv":
        _check_columns(one)
    if one.format == "tsv":
        _check_tabs(one)
    if one.format == "tmx":
        return (codes[0] if codes else None), None
    pairs = read_sample(one, ("und", "und"))
    return identify([source for source, _ in pairs]), identify([target for _, target in pairs])


def _check_columns(file: FileLook) -> None:
    """Raises if a CSV file has other than two columns and its first row does not say which to use."""
    if len(file.columns) == 2 or csv_table.find_columns(file.columns, ("und", "und")) is not None:
        return
    check_encoding(file)
    shown = ", ".join(column[:_SHOWN_CHARACTERS] or "(empty)" for column in file.columns)
    raise LockstepError(
        f"{file.path} has {len(file.columns)} columns, and it is not clear which two are the languages: {shown}.",
        "Name them in the first row: codes or names of languages (en, English, Español), or source and target.",
        code=2,
    )


def _check_tabs(file: FileLook) -> None:
    """Raises if the rows of a TSV file have another number of columns than two."""
    if len(file.columns) == 2:
        return
    check_encoding(file)
    count = len(file.columns)
    shown = ", ".join(column[:_SHOWN_CHARACTERS] or "(empty)" for column in file.columns)
    keep = f"Keep two of them, for example: cut -f 1,2 {file.path} > pairs.tsv"
    message = f"{file.path} has {count} column{'s' * (count != 1)} instead of two: {shown}."
    raise LockstepError(message, keep if count > 2 else "Separate the two languages by a tab.", code=2)


def identify(sentences: Sequence[str]) -> str | None:
    """The language of some sentences; None if it is not clear."""
    language, share = identify_language(sentences)
    return language if share > _FEWEST_SENTENCES and language != "und" else None


def _dash(code: str) -> str:
    """`pt-BR` for `pt_BR.UTF-8` and `pt_BR@latin`."""
    return re.split(r"[@.]", code)[0]


def _shorten(code: str) -> str:
    """`en` for `en-US` and `EN_us`."""
    return re.split(r"[-_@.]", code)[0].lower()
