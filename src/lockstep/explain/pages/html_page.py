"""Renders HTML pages that need no network: style, script and plotly are inside them."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.errors import LockstepError
from lockstep.explain.answer import Chart

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).with_name("templates")
UNIT = re.compile(r"(\d) (%|[kMG]?B\b|[kMGT]?(?:bit|FLOP)/s|ms\b|µs\b|s\b|h\b|min\b|d\b)")


def render(template: str, charts: Sequence[Chart], **values: object) -> str:
    """Renders a template that extends base.html.j2. The template places the charts by their names."""
    figures = {chart.name: {**chart.figure, "height": chart.height} for chart in charts}
    return (
        templates()
        .get_template(template)
        .render(
            figures=embed_json(figures),
            plotly=read_plotly_script() if charts else "",
            style=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
            script=(TEMPLATES / "report.js").read_text(encoding="utf-8"),
            **values,
        )
    )


def embed_json(value: Mapping[str, object]) -> str:
    """Returns JSON for a `<script>` element. No text in it can end the element or begin a comment."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


@cache
def templates() -> "Environment":
    import jinja2
    from markupsafe import Markup, escape

    def coded(value: object) -> Markup:
        """Renders words in backticks as code, and keeps numbers and their units on one line."""
        parts = UNIT.sub("\\1\u00a0\\2", str(escape(value))).split("`")
        return Markup("".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts)))

    def cell(value: object) -> str:
        """Renders a cell of a Markdown table."""
        return str(value).replace("|", "\\|").replace("\n", " ")

    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader,
        autoescape=lambda name: bool(name and name.endswith(".html.j2")),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "coded": coded,
        "cell": cell,
        "moment": lambda value: time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value)),
    }
    return environment


@cache
def read_plotly_script() -> str:
    """Reads plotly.js from the Python package, without importing the package."""
    package = find_spec("plotly")
    if package is None or not package.submodule_search_locations:
        raise LockstepError("The package plotly is not installed, and the page's charts need it.", "pip install plotly")
    folder = Path(package.submodule_search_locations[0])
    return (folder / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
