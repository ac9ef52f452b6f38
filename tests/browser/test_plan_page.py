"""The page of a plan as a person sees it."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lockstep.lab.plan.cluster import load_cluster, parse_link
from lockstep.lab.plan.plan_page import render_plan
from lockstep.lab.plan.planned_job import PlannedJob
from lockstep.lab.plan.predict import make_plan
from pages import CHROMIUM, MARKS, open_page, save_screenshot
from planning import make_profile

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (Debian package chromium)")


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (375, "dark")])
def test_charts_are_drawn_and_fit_the_width(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    job, links = (
        PlannedJob(make_profile(spread=0.03), 1000, per_worker=True),
        [parse_link("1gbit"), parse_link("10gbit")],
    )
    path = tmp_path / "plan.html"
    path.write_text(render_plan(make_plan(job, load_cluster("office"), [1, 2, 4, 8, 16], links=links, steps=50_000)))
    with open_page(browser, path, width, scheme) as page:
        charts = page.evaluate(MARKS)
        assert len(charts) == 4
        for name, marks, words in charts:
            assert marks > 0, f"{name} is empty"
            assert words > 20, f"{name} has no text for those who cannot see it"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        save_screenshot(page, f"plan-{width}-{scheme}")
