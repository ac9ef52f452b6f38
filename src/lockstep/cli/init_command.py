"""`lockstep init`: looks at text files and writes a config for them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pydantic import JsonValue

    from lockstep.cli.fit_sizes import FittedSizes
    from lockstep.config.sizes import Size
    from lockstep.data.data_settings import DataSettings
    from lockstep.data.text.arrange import TextSource
    from lockstep.data.text.survey import Survey

SECONDS = 60.0
"""Counting stops after this time."""
FEWEST_PAIRS, FEW_PAIRS = 5, 2000
MOST_DOUBTFUL, SHOWN_SENTENCES = 0.5, 1000
"""If more pairs than this share are in other languages, the named languages are probably wrong."""
MOST_UNDECODABLE = 0.02
"""If more lines than this share are not valid text, the file is in another encoding."""


def init(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Two files with a sentence per line, .tsv, .csv, .tmx, .po or .mo files, compressed or not, or a folder."
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="The config file to write.")] = Path("lockstep.yaml"),
    source: Annotated[
        str | None, typer.Option(help="Source language, as en. Default: of the first file or column.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Target language, as de. Default: of the second file or column.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the config file if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look at your text and write a config with which it can be trained here.

    Files named like valid, dev or test are used for that; without validation text, some is split off the training text.
    From two files to a translated sentence: `lockstep init a.en a.de`, `lockstep train lockstep.yaml`,
    `lockstep translate runs/lockstep`.
    """
    from lockstep.cli.common import print_json
    from lockstep.cli.fit_sizes import fit_sizes
    from lockstep.config import build, load
    from lockstep.config.write_config import write_config
    from lockstep.data.text.arrange import arrange, check_encoding, choose_languages
    from lockstep.data.text.languages import find_code
    from lockstep.errors import LockstepError
    from lockstep.files import disk_error, write_atomically

    if to.exists() and not force:
        raise LockstepError(f"{to} exists already.", "--force overwrites it; --to writes another file.", code=2)
    if not to.absolute().parent.is_dir():
        raise LockstepError(
            f"There is no folder {to.parent}.", "Make it first, or choose another file with --to.", code=2
        )
    wanted = (find_code(source) or source) if source else None, (find_code(target) or target) if target else None
    arranged = arrange(files, wanted)
    languages = choose_languages(arranged.sources, wanted)
    arranged = arranged.leave_out(languages)
    sources = [text.put_in_order(languages) for text in arranged.sources]
    named = name_texts(sources, languages)
    data = build({"data": {"languages": list(languages), **named, "bad_lines": "skip"}}, "the text").data
    fitted = fit_sizes(data, SECONDS)
    if fitted.survey.bad["undecodable"] > MOST_UNDECODABLE * fitted.survey.pairs:
        for file in (one for text in sources for one in text.looks):
            check_encoding(file)
    surveys = _survey_all(data, fitted)
    settings = _list_data_settings(languages, named, surveys)
    try:
        write_atomically(to, write_config(_write_head(languages, fitted, to), settings, fitted.sizes))
    except OSError as error:
        raise disk_error(to, error, "choose another file with --to") from None
    load(to, [])  # what was written can be read
    notes = [*arranged.unused, *_doubt_languages(languages, fitted.survey), *list_notes(surveys)]
    if as_json:
        print_json(_list_facts(to, languages, sources, surveys, fitted) | {"notes": notes})
    else:
        _print_result(to, languages, sources, surveys, fitted, notes)


def name_texts(sources: "Sequence[TextSource]", languages: tuple[str, str]) -> "dict[str, JsonValue]":
    """The settings data.folder, data.train, data.validation and data.test for these files."""
    folders = {path.parent for text in sources for path in text.paths}
    folder = _shorten(folders.pop()) if len(folders) == 1 else Path()
    named: dict[str, JsonValue] = {"folder": str(folder)}
    for role in ("train", "validation", "test"):
        if names := [_name(text, folder, languages) for text in sources if text.role == role]:
            named[role] = names  # type: ignore[assignment]
    return named


def _name(text: "TextSource", folder: Path, languages: tuple[str, str]) -> str | list[str]:
    """The name of a text: NAME for NAME.en and NAME.de, else its files."""
    from lockstep.data.text.compressed import strip_compression

    paths = [_shorten(path) for path in text.paths]
    names = [str(path.relative_to(folder) if path.is_relative_to(folder) else path) for path in paths]
    if len(names) == 1:
        return names[0]
    plain = [strip_compression(name) for name in names]
    stems = {name.removesuffix(f".{code}") for name, code in zip(plain, languages, strict=True)}
    is_short = len(stems) == 1 and all(name.endswith(f".{code}") for name, code in zip(plain, languages, strict=True))
    return stems.pop() if is_short else names


def _shorten(path: Path) -> Path:
    """The path as one would type it in the current folder; absolute if it is elsewhere."""
    absolute = path.expanduser().absolute()
    return absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute


def _survey_all(data: "DataSettings", fitted: "FittedSizes") -> "dict[str, Survey]":
    """The counts of all sets. Held-out text must be complete, because every line of it is scored."""
    from lockstep.data.text.parallel_text import read_set
    from lockstep.data.text.survey import survey
    from lockstep.errors import LockstepError

    training = fitted.survey
    if len(training.sample) < 2 * FEWEST_PAIRS:
        pairs = _count(training.pairs, "pair")
        if training.pairs < FEWEST_PAIRS:
            raise LockstepError(f"{pairs} of training text cannot train a model.", "Give more text.", code=2)
        message = f"Of {pairs} of training text, cleaning leaves fewer than {FEWEST_PAIRS} different ones."
        remedy = "Check that the two sides are translations of each other, and the languages (--source, --target)."
        raise LockstepError(message, remedy, code=2)
    surveys = {"train": training}
    for name in ("validation", "test"):
        if getattr(data, name):
            for _ in read_set(data, name):  # raises at a line that cannot be scored
                pass
            surveys[name] = survey(data, name, training.pairs + 1_000_000)
    return surveys


def _list_data_settings(
    languages: tuple[str, str], named: "dict[str, JsonValue]", surveys: "dict[str, Survey]"
) -> "list[Size]":
    from lockstep.config.sizes import Size
    from lockstep.data.data_settings import SplitSettings

    counted, split = surveys["train"], SplitSettings()
    settings = [Size("data.languages", list(languages), "source and target")]
    settings += [Size(f"data.{name}", value, "") for name, value in named.items()]
    if bad := sum(one.bad["undecodable"] + one.bad["columns"] for one in surveys.values()):
        settings.append(Size("data.bad_lines", "skip", f"{_count(bad, 'line')} cannot be read; `refuse` stops at them"))
    if "validation" not in named:
        pairs = max(1, min(split.most, round(split.share * (counted.pairs - counted.duplicates))))
        sets = "validation" if "test" in named else "validation and test"
        reason = f"{sets} text is split off: about {_count(pairs, 'pair')} each, never seen in training"
        settings += [Size("data.split.share", split.share, reason), Size("data.split.most", split.most, "at most")]
    return settings


def _write_head(languages: tuple[str, str], fitted: "FittedSizes", to: Path) -> list[str]:
    return [
        f"{languages[0]} to {languages[1]}, {_describe_pairs(fitted.survey)}. Written by `lockstep init`.",
        f"Train: lockstep train {to}",
        f"This will probably take {_describe_minutes(fitted)}.",
        "Change what you like; `lockstep config explain` says what every setting means.",
    ]


def _describe_pairs(counted: "Survey") -> str:
    return f"{'' if counted.is_complete else 'more than '}{_count(counted.pairs, 'pair')}"


def _describe_machine(fitted: "FittedSizes") -> str:
    machine = fitted.machine
    gpus = _count(machine.gpus, "GPU") if machine.gpus else "no GPU"
    return f"{_count(machine.cores, 'core')}, {machine.memory_gb:.0f} GB, {gpus}"


def _describe_minutes(fitted: "FittedSizes") -> str:
    """The expected duration as a range, such as `20 minutes to 2 hours`, and the machine it is for."""
    low, high = ((1.0 if minutes < 1 else minutes) for minutes in fitted.sizes.minutes)
    texts = [
        _count(round(minutes), "minute") if minutes < 90 else _count(round(minutes / 60), "hour")
        for minutes in (low, high)
    ]
    span = "about a minute" if high < 1.5 else f"{texts[0]} to {texts[1]}"
    return f"{span} on this machine ({_describe_machine(fitted)})"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _print_result(
    to: Path,
    languages: tuple[str, str],
    sources: "Sequence[TextSource]",
    surveys: "dict[str, Survey]",
    fitted: "FittedSizes",
    notes: list[str],
) -> None:
    from rich import box
    from rich.table import Table

    from lockstep.cli.common import fold
    from lockstep.safe_console import SafeConsole

    table = Table(box=box.SIMPLE, title=f"{languages[0]} to {languages[1]}", title_justify="left")
    table.add_column("set", no_wrap=True)
    table.add_column("files", overflow="fold")
    for heading in ("format", "encoding"):
        table.add_column(heading, no_wrap=True)
    for heading in ("pairs", "words a pair"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, counted in surveys.items():
        words = " / ".join(f"{count / max(1, counted.pairs):.1f}" for count in counted.words)
        counts = [f"{counted.pairs:,}{'' if counted.is_complete else '+'}", words]
        first = [name, *counts]
        for look in [look for text in sources if text.role == name for look in text.looks]:
            encoding = str(look.encoding) if look.is_readable else "utf-8"
            table.add_row(first[0], fold(str(_shorten(look.path)), 20), look.format, encoding, *first[1:])
            first = [""] * 3
    console = SafeConsole(highlight=False, markup=False, soft_wrap=True)
    SafeConsole(highlight=False).print(table)
    for note in notes:
        console.print(note)
    chosen = fitted.sizes.as_dict()
    model = f"{chosen['model.encoder_layers']}+{chosen['model.decoder_layers']} layers of width {chosen['model.width']}"
    console.print(f"Wrote {to}: {chosen['data.vocabulary.size']:,} pieces, {model}, {chosen['train.steps']:,} steps.")
    console.print(f"Training will probably take {_describe_minutes(fitted)}.")
    console.print(f"Next: lockstep train {to}")


def _doubt_languages(languages: tuple[str, str], counted: "Survey") -> list[str]:
    """Sentences on languages that are not known, or that the text does not look like."""
    from lockstep.data.text.arrange import identify
    from lockstep.data.text.languages import is_known

    notes = [
        f"{code} is not a language code that is known here (as en, de or pt-BR are): its language check is off."
        for code in languages
        if not is_known(code)
    ]
    if counted.doubtful > MOST_DOUBTFUL * counted.usable:
        seen = [identify(side[:SHOWN_SENTENCES]) or "an unknown language" for side in counted.sides]
        notes.append(
            f"The text does not look like {languages[0]} and {languages[1]}, but like {seen[0]} and {seen[1]}: "
            "check --source, --target and the order of the files."
        )
    return notes


def list_notes(surveys: "dict[str, Survey]") -> list[str]:
    """What the user should know about the text, one sentence each."""
    counted = surveys["train"]
    notes = []
    if not counted.is_complete:
        notes.append(f"Counted only the first {counted.pairs:,} pairs; there are more.")
    removed = (
        (counted.duplicates, "duplicate", ""),
        (counted.empty, "pair", " with an empty side"),
        (counted.bad["undecodable"], "line", " with invalid UTF-8"),
        (counted.bad["columns"], "line", " without two columns"),
        (counted.bad["characters"], "line", " of far too many characters"),
    )
    if any(number for number, _, _ in removed):
        shown = ", ".join(f"{_count(number, noun)}{what}" for number, noun, what in removed if number)
        notes.append(f"Cleaning will remove at least {shown}.")
    if counted.bad["undecodable"]:
        notes.append("If a file is not UTF-8 at all, convert it instead: iconv -f WINDOWS-1252 -t UTF-8 FILE.")
    if "validation" not in surveys:
        notes.append("There is no validation text: some pairs are split off the training text (data.split).")
    if counted.is_complete and counted.pairs < FEW_PAIRS:
        notes.append(f"{_count(counted.pairs, 'pair')} of training text is very little: expect poor translations.")
    return notes


def _list_facts(
    to: Path,
    languages: tuple[str, str],
    sources: "Sequence[TextSource]",
    surveys: "dict[str, Survey]",
    fitted: "FittedSizes",
) -> dict[str, object]:
    return {
        "config": str(to),
        "languages": list(languages),
        "files": [
            {
                "set": text.role,
                "format": text.format,
                "paths": [str(path) for path in text.paths],
                "encodings": [one.encoding for one in text.looks],
            }
            for text in sources
        ],
        "sets": {
            name: {
                "pairs": one.pairs,
                "is_complete": one.is_complete,
                "source_words": one.words[0],
                "target_words": one.words[1],
                "longest": one.longest,
                "empty": one.empty,
                "duplicates": one.duplicates,
                "bad_lines": dict(one.bad),
            }
            for name, one in surveys.items()
        },
        "sizes": [{"key": size.key, "value": size.value, "reason": size.reason} for size in fitted.sizes.settings],
        "minutes": list(fitted.sizes.minutes),
        "next": f"lockstep train {to}",
    }
