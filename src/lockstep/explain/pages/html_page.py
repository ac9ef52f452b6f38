"""A page that needs no network: style, script and plotly are inside it."""

import json
import re
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.explain.answer import Chart
from lockstep.explain.pages.charts import plotly_script

TEMPLATES = Path(__file__).with_name("templates")
UNIT = re.compile(r"(\d) (%|[kMG]?B\b|[kMGT]?(?:bit|FLOP)/s|ms\b|µs\b|s\b|h\b|min\b|d\b)")


def render(template: str, charts: Sequence[Chart], **values: Any) -> str:
    """A template that extends base.html.j2; it places the charts by their names."""
    figures = {chart.name: chart.figure | {"height": chart.height} for chart in charts}
    return str(
        templates()
        .get_template(template)
        .render(
            figures=json.dumps(figures, separators=(",", ":"), allow_nan=False).replace("</", "<\\/"),
            plotly=plotly_script(),
            style=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
            script=(TEMPLATES / "report.js").read_text(encoding="utf-8"),
            **values,
        )
    )


@cache
def templates() -> Any:
    import jinja2
    from markupsafe import Markup, escape

    def coded(value: object) -> Markup:
        """Words in backticks as code, and figures that stay with their units."""
        parts = UNIT.sub("\\1\u00a0\\2", str(escape(value))).split("`")
        return Markup("".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts)))

    def cell(value: object) -> str:
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
