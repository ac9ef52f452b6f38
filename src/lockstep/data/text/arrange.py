"""Finds out what text files are: which belong together, their languages, and which are for validation or test."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from lockstep.data.text.compressed import strip_compression
from lockstep.data.text.find_files import Format
from lockstep.data.text.identify import identify_language
from lockstep.data.text.languages import is_known, matches_language
from lockstep.data.text.look import FileLook, look, read_sample, read_sample_lines
from lockstep.errors import LockstepError

SetName = Literal["train", "validation", "test"]
_VALIDATION = re.compile(r"(valid|validation|val|dev|devel|newsdev)\d*")
_TEST = re.compile(r"(test|tst|newstest|devtest|testset)\d*")
_NAMES = (
    "ar arabic ara, bg bulgarian bul, cs czech ces cze, da danish dan, de german deutsch deu ger, el greek ell gre, "
    "en english eng, es spanish espanol spa, et estonian est, fa persian fas, fi finnish fin, fr french francais fra fre, "
    "he hebrew heb, hi hindi hin, hr croatian hrv, hu hungarian hun, id indonesian ind, it italian italiano ita, "
    "ja japanese jpn, ko korean kor, lt lithuanian lit, lv latvian lav, nl dutch nld dut, no norwegian nor, "
    "pl polish pol, pt portuguese por, ro romanian ron rum, ru russian rus, sk slovak slk, sl slovenian slv, "
    "sv swedish swe, th thai tha, tr turkish tur, uk ukrainian ukr, vi vietnamese vie, zh chinese zho chi"
)
_CODES = {name: names.split()[0] for names in _NAMES.split(", ") for name in names.split()}
"""Language codes by the codes and names that people write into file names."""
_FEWEST_SENTENCES = 0.2
"""At least this share of the sentences must look like the language of the text."""
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
                f"{self.paths[0]} has {first} in its first column and {second} in its second one.",
                f"The first column must be the source: use --source {first} --target {second}, or swap the columns.",
                code=2,
            )
        return replace(self, paths=self.paths[::-1], languages=self.languages[::-1], looks=self.looks[::-1])


def arrange(places: Sequence[Path], wanted: tuple[str | None, str | None]) -> list[TextSource]:
    """Arranges the files, and the files in the folders. `wanted` are the languages that the user named."""
    looks = [look(path) for path in _expand(places)]
    sources: list[tuple[FileLook, ...]] = [(one,) for one in looks if one.format != "lines"]
    sources += _pair([one for one in looks if one.format == "lines"], wanted, any(place.is_dir() for place in places))
    if not sources:
        raise LockstepError(
            f"There is no parallel text in {', '.join(map(str, places))}.",
            "Give two files with a sentence per line, or one .tsv, .csv, .tmx, .po or .mo file.",
            code=2,
        )
    roles = _find_roles([one[0].path for one in sources])
    return [
        TextSource(one[0].format, tuple(file.path for file in one), _find_languages(one, wanted), role, one)
        for one, role in zip(sources, roles, strict=True)
    ]


def check_encodings(sources: Sequence[TextSource]) -> None:
    """Raises an error that names a file in another encoding than UTF-8 or UTF-16, and the likely encoding."""
    for one in (one for text in sources for one in text.looks if not one.is_readable):
        name = "WINDOWS-1252" if one.encoding is None else one.encoding.replace("cp", "WINDOWS-").upper()
        guess = "" if one.encoding is None else f" It looks like {name}, which is only a guess."
        raise LockstepError(
            f"{one.path} is not UTF-8.{guess}",
            f"Convert it, for example: iconv -f {name} -t UTF-8 {one.path} > converted.txt",
            code=2,
        )


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
    for place in places:
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


def split_language(path: Path) -> tuple[str, str | None]:
    """The path without the language in its name, and that language: (`news.`, `en`) for news.en."""
    name = strip_compression(path.name)
    parts = re.split(r"([._-])", name)
    for place in reversed(range(0, len(parts), 2)):
        part = parts[place].lower()
        code = _CODES.get(part) or (part if is_known(part) else None)
        if code is not None:
            return str(path.with_name("".join([*parts[:place], *parts[place + 1 :]]) or "*")), code
    return str(path), None


def _find_roles(paths: Sequence[Path]) -> list[SetName]:
    """What each text is for, from its name. If there is only one kind of text, it is for training."""
    roles: list[SetName] = [_find_role(path) for path in paths]
    if len(set(roles)) == 1:
        return ["train"] * len(paths)
    news = sorted(
        path.name for path, role in zip(paths, roles, strict=True) if role == "test" and "newstest" in path.name
    )
    if "validation" not in roles and len(news) > 1:  # as is usual, the earlier news is for validation
        roles = ["validation" if path.name == news[0] else role for path, role in zip(paths, roles, strict=True)]
    return roles


def _find_role(path: Path) -> SetName:
    for word in re.split(r"[^a-z0-9]+", path.name.lower()):
        if _TEST.fullmatch(word):
            return "test"
        if _VALIDATION.fullmatch(word):
            return "validation"
    return "train"


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
    if one.format == "tmx":
        return (codes[0] if codes else None), None
    pairs = read_sample(one, ("und", "und"))
    return identify([source for source, _ in pairs]), identify([target for _, target in pairs])


def identify(sentences: Sequence[str]) -> str | None:
    """The language of some sentences; None if it is not clear."""
    language, share = identify_language(sentences)
    return language if share > _FEWEST_SENTENCES and language != "und" else None


def _shorten(code: str) -> str:
    """`en` for `en-US` and `EN_us`."""
    return re.split(r"[-_@.]", code)[0].lower()
