"""Renders the comparison of runs as one page that needs no network: plotly's script is inside it."""

from dataclasses import asdict
from pathlib import Path

from lockstep.explain.compare_rows import list_differences, list_figures
from lockstep.explain.compare_runs import RunComparison
from lockstep.explain.pages.html_page import embed_json, read_plotly_script

TEMPLATE = Path(__file__).with_name("templates") / "compare.html.j2"


def render_comparison(comparison: RunComparison) -> str:
    import jinja2

    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    names = [side.name for side in comparison.sides]
    curves = {name: [asdict(side.curves[name].thin()) for side in comparison.sides] for name in comparison.shared}
    drawn = {"names": names, "axes": comparison.axes, "curves": curves, "phases": _list_phases(comparison)}
    return template.render(
        comparison=comparison,
        names=names,
        differences=list_differences(comparison.settings + comparison.environment),
        figures=list_figures(comparison),
        drawn=embed_json(drawn),
        plotly=read_plotly_script(),
        curve_names=list(curves),
    )


def _list_phases(comparison: RunComparison) -> dict[str, list[float]]:
    """Returns milliseconds of a step by phase, one value per run."""
    sides = [side.summary for side in comparison.sides]
    return {
        phase: [one.phase_shares.get(phase, 0.0) * (one.seconds_per_step or 0.0) * 1000 for one in sides]
        for phase in sides[0].phase_shares
    }
