"""The comparison as one page that needs no network: plotly's script is inside it."""

import json
from pathlib import Path

from lockstep.explain.compare_rows import differences, figures
from lockstep.explain.compare_runs import RunComparison
from lockstep.explain.pages.charts import plotly_script

TEMPLATE = Path(__file__).with_name("templates") / "compare.html.j2"


def page(found: RunComparison) -> str:
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    facts = found.as_dict()
    names = [side.name for side in found.sides]
    curves = {name: [side["curves"][name] for side in facts["sides"]] for name in found.shared}
    drawn = {"names": names, "axes": found.axes, "curves": curves, "phases": _phases(found)}
    return template.render(
        found=found,
        names=names,
        differences=differences(found.settings + found.environment),
        figures=figures(found),
        drawn=json.dumps(drawn, allow_nan=False).replace("<", "\\u003c"),
        plotly=plotly_script(),
        curve_names=list(curves),
    )


def _phases(found: RunComparison) -> dict[str, list[float]]:
    """Milliseconds of a step by phase, one value per run."""
    sides = [side.summary for side in found.sides]
    return {
        phase: [one.phase_shares.get(phase, 0.0) * (one.seconds_per_step or 0.0) * 1000 for one in sides]
        for phase in sides[0].phase_shares
    }
