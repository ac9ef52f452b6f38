"""`lockstep prepare`."""

from typing import Annotated

import typer


def prepare(
    config: Annotated[list[str], typer.Argument(help="A config file, then any `key=value` settings to change.")],
    force: Annotated[bool, typer.Option("--force", help="Make the corpus again even if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """Make the binary corpus that a config describes: read, check, clean, train the vocabulary, encode.

    `train` does this by itself; use `prepare` to do it beforehand or to see what is in the text.
    """
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from lockstep.cli.common import prepare_corpus, print_json, read_config

    corpus = prepare_corpus(read_config(config), force)
    if as_json:
        print_json({"folder": str(corpus.folder)} | corpus.facts)
        return
    table = Table(box=box.SIMPLE, title=f"Corpus {escape(str(corpus.folder))}", title_justify="left")
    for heading in ("set", "pairs", "source words", "target words", "longest", "removed"):
        table.add_column(heading, justify="left" if heading in ("set", "removed") else "right")
    for name, facts in corpus.facts["sets"].items():
        removed = ", ".join(f"{count:,} {reason}" for reason, count in facts.get("removed", {}).items() if count)
        longest = max(facts["source_longest"], facts["target_longest"])
        counts = (facts["lines"], facts["source_words"], facts["target_words"], longest)
        table.add_row(name, *(f"{count:,}" for count in counts), removed or "none")
    console = Console()
    console.print(table)
    size = corpus.vocabulary.size
    console.print(f"{corpus.facts['megabytes']:.1f} MB of text; {size:,} pieces; words are pieces with end marks.")
