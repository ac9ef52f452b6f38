"""`lockstep data` and `lockstep prepare`."""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

import typer

from lockstep.cli.common import print_text
from lockstep.cli.describe_command import describe
from lockstep.cli.removed_command import removed
from lockstep.cli.show_command import show

if TYPE_CHECKING:
    from rich.progress import TaskID

    from lockstep.data.catalog.entries import CatalogEntry, SetName
    from lockstep.data.catalog.get import CatalogCorpus

app = typer.Typer(
    help="List and download known corpora, make one from your images, describe one, show what cleaning removed or what a "
    "step trained on.",
    no_args_is_help=True,
)
app.command()(describe)
app.command()(removed)
app.command()(show)

IMAGE_CONFIGS = {"cifar10": "configs/cifar10-fast.yaml", "fashion-mnist": "configs/fashion-mnist.yaml"}
"""A config for each corpus of images in the built-in catalog."""
Catalog = Annotated[
    Path | None,
    typer.Option(
        "--catalog", envvar="LOCKSTEP_CATALOG", help="Your own catalog; its entries are added to the built-in ones."
    ),
]


@app.command("list")
def list_corpora(
    name: Annotated[
        str | None, typer.Argument(help="Show only this corpus, with licence, addresses and digests.")
    ] = None,
    catalog: Catalog = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the corpora that `lockstep data get` can download, or show one of them in detail."""
    from rich import box
    from rich.table import Table

    from lockstep.cli.common import print_json
    from lockstep.data.catalog.entries import find, load
    from lockstep.safe_console import SafeConsole

    entries = load(catalog)
    if name is not None:
        entries = {name: find(entries, name)}
    if as_json:
        print_json({key: entry.model_dump(mode="json") for key, entry in entries.items()})
        return
    if name is not None:
        print_text(_description(name, entries[name]))
        return
    table = Table(box=box.SIMPLE)
    table.add_column("name", no_wrap=True)
    for heading in ("train", "validation", "test"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what it is")
    for key, entry in entries.items():
        table.add_row(key, *(_count(entry, heading) for heading in ("train", "validation", "test")), entry.title)
    console = SafeConsole()
    console.print(table)
    console.print("`lockstep data list NAME` shows licence and files; `lockstep data get NAME` downloads it.")


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="A name from `lockstep data list`.")],
    to: Annotated[Path | None, typer.Option("--to", help="Folder to write to; default: corpora/NAME.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--from", help="A folder with the downloaded files; nothing is downloaded then.")
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache", envvar="LOCKSTEP_CACHE", help="Folder for downloaded files; default: ~/.cache/lockstep."
        ),
    ] = None,
    catalog: Catalog = None,
    tries: Annotated[
        int, typer.Option("--tries", min=1, help="Attempts in a row without progress before giving up.")
    ] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Download a known corpus, check it, and write its data and a config for `lockstep train`.

    After an interruption, the same command continues where it stopped.
    """
    from lockstep.cli.common import print_json
    from lockstep.data.catalog.entries import find, load
    from lockstep.data.catalog.fetch import cache_folder
    from lockstep.data.catalog.get import get as get_corpus

    entry = find(load(catalog), name)
    target = to or Path("corpora") / name
    with _Terminal() as terminal:
        if entry.restricted:
            terminal.warn(f"LICENCE of {name}: {entry.licence}")
        result = get_corpus(name, entry, terminal, to=target, cache=cache_folder(cache), folder=folder, tries=tries)
    if as_json:
        config = str(result.config) if result.config else None
        print_json({"folder": str(result.folder), "made": result.made, "config": config, **result.facts})
        return
    _print_result(name, result)


@app.command()
def pictures(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A folder with one folder of image files for each class, or with train/ and test/ of that form."
        ),
    ],
    to: Annotated[Path | None, typer.Option("--to", help="Folder to write to; default: corpora/FOLDER.")] = None,
    size: Annotated[
        int, typer.Option(min=8, max=1024, help="Width and height in pixels; images are scaled to it.")
    ] = 32,
    grey: Annotated[bool, typer.Option("--grey", help="Convert to greyscale.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a corpus from your own image files (PNG, JPEG, ...), sorted into one folder for each class.

    Without a test/ folder, about a tenth of the images becomes the test set; it is the same in every call. A config for
    `lockstep train` is written too.
    """
    from lockstep.cli.common import print_json
    from lockstep.data.images.image_folders import make_images

    target = (to or Path("corpora") / folder.resolve().name).expanduser()
    with _Terminal(counts=True) as terminal:
        made = make_images(folder.expanduser(), target, size, grey, terminal.progress)
    config = target / f"{target.name}.yaml"
    if as_json:
        print_json({"folder": str(target), "config": str(config), **made})
        return
    counts = ", ".join(f"{name} {count:,}" for name, count in made["counts"].items())
    print_text(f"The images of {len(made['classes'])} classes are in {_shorten(target)}: {counts}")
    print_text(f"Next: lockstep train {_shorten(config)}")


def _print_result(name: str, result: "CatalogCorpus") -> None:
    counts = ", ".join(f"{key} {count:,}" for key, count in result.facts["counts"].items())
    place = _shorten(result.folder)
    print_text(f"{name} is in {place}: {counts}" if result.made else f"{name} is already in {place}: {counts}")
    print_text(f"Licence: {result.facts['licence']}")
    if result.config:
        print_text(f"Next: lockstep train {_shorten(result.config)}")
    elif name in IMAGE_CONFIGS:
        print_text(f"Next: lockstep train {IMAGE_CONFIGS[name]} data.images={place}")
    else:
        print_text(f"Next: set data.images={place} in a config; configs/cifar10-fast.yaml is an example.")


def _shorten(path: Path) -> str:
    """A path as one would type it in the current folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _count(entry: "CatalogEntry", name: "SetName") -> str:
    if name in entry.counts:
        return f"{entry.counts[name]:,}"
    return f"~{entry.about[name]:,}" if name in entry.about else "-"


def _description(name: str, entry: "CatalogEntry") -> str:
    lines = [f"{name}: {entry.title}", f"licence: {entry.licence}", f"cite: {entry.citation}", f"sets: {entry.splits}"]
    lines += [f"{key}: {_count(entry, key)}" for key in ("train", "validation", "test") if _count(entry, key) != "-"]
    for key, piece in entry.pieces.items():
        for source in piece.sources:
            size = f"{source.bytes:,} bytes" if source.bytes else "size not recorded"
            digest = "digest of sacreBLEU" if source.address.startswith("sacrebleu:") else "digest not recorded"
            lines.append(f"piece {key}: {source.address} ({size}, {source.digest or digest})")
    return "\n".join(lines)


class _Terminal:
    """Prints lines and a progress bar to stderr, so that stdout has only the result."""

    def __init__(self, counts: bool = False) -> None:
        """With `counts`, progress is a number of files, not of bytes."""
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        from lockstep.safe_console import SafeConsole

        self._console = SafeConsole(stderr=True, highlight=False, markup=False, soft_wrap=True)
        far = (MofNCompleteColumn(), TimeRemainingColumn()) if counts else (DownloadColumn(), TransferSpeedColumn())
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), *far)
        self._progress = Progress(
            *columns, console=self._console, transient=True, disable=not self._console.is_terminal
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        self._console.print(line)

    def warn(self, line: str) -> None:
        self._console.print(line, style="bold red")

    def progress(self, name: str, done: int, total: int | None) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total)
        self._progress.update(self._tasks[name], completed=done, total=total, visible=done != total)


def prepare(
    config: Annotated[list[str], typer.Argument(help="A config file, then settings to change, as `train.steps=2000`.")],
    force: Annotated[bool, typer.Option("--force", help="Prepare the corpus again even if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prepare the text of a config for training: check and clean it, train the vocabulary, encode.

    `lockstep train` does this by itself. Use `prepare` to do it in advance, or to see what cleaning removes.
    """
    from rich import box
    from rich.table import Table

    from lockstep.cli.common import prepare_corpus, print_json, read_config
    from lockstep.cli.describe_command import describe_cleaning
    from lockstep.safe_console import SafeConsole

    corpus = prepare_corpus(read_config(config), force)
    if as_json:
        print_json({"folder": str(corpus.folder), **corpus.facts})
        return
    table = Table(box=box.SIMPLE, title=f"Corpus {corpus.folder}", title_justify="left")
    for heading in ("set", "pairs", "source pieces", "target pieces", "longest", "removed"):
        table.add_column(
            heading, justify="left" if heading in ("set", "removed") else "right", no_wrap=heading != "removed"
        )
    for name, facts in corpus.facts["sets"].items():
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in facts.get("removed", {}).items() if count)
        longest = max(facts["source_longest"], facts["target_longest"])
        counts = (facts["lines"], facts["source_words"], facts["target_words"], longest)
        table.add_row(name, *(f"{count:,}" for count in counts), dropped or "none")
    console = SafeConsole()
    console.print(table)
    for line in describe_cleaning(corpus.facts):
        console.print(line)
    if any(corpus.facts["sets"]["train"]["removed"].values()):
        console.print(f"`lockstep data removed {corpus.folder}` shows the removed pairs.", soft_wrap=True)
    size = corpus.vocabulary.size
    console.print(
        f"{corpus.facts['megabytes']:.1f} MB of text, {size:,} pieces in the vocabulary. End marks count as pieces."
    )
