"""Text from runs, corpora and studies cannot break a page, whatever it contains."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lockstep.cli.evaluate_output import SystemFacts, SystemOutput, make_view
from lockstep.explain.compare_runs import compare
from lockstep.explain.pages.compare_page import render_comparison
from lockstep.explain.pages.evaluation_page import render_evaluation
from lockstep.explain.report import make, write
from lockstep.lab.plan.cluster import load_cluster, parse_link
from lockstep.lab.plan.plan_page import render_plan
from lockstep.lab.plan.planned_job import PlannedJob
from lockstep.lab.plan.predict import make_plan
from lockstep.lab.study.results import analyse
from lockstep.lab.study.study_page import write_study
from lockstep.translate.score_texts import ParallelText, ScoringSettings, evaluate_texts, prepare_scoring
from madeup import MadeUp
from pages import CHROMIUM, open_page
from planning import make_profile
from studies import make_study

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (Debian package chromium)")

HOSTILE = "<!--<script>'\"&\u2028</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"
EMPTY_PLOTS = """
[...document.querySelectorAll('.plot')].filter(plot => {
  const marks = [...plot.querySelectorAll('.scatterlayer .trace path, .barlayer .point path')];
  return !marks.some(mark => { const box = mark.getBoundingClientRect(); return box.width + box.height > 0; });
}).map(plot => plot.id || plot.dataset.curve)
"""


def make_run(folder: Path) -> Path:
    """A run whose metric, unit, hosts, files and settings are hostile text."""
    run = MadeUp(folder, hosts=[HOSTILE, "two"])
    run.data(files=[{"set": "train", "path": HOSTILE, "bytes": 5000, "sha256": HOSTILE}])
    run.config(data={"folder": HOSTILE, "languages": [HOSTILE, "de"]})
    scores = {step: {"loss": 1.6, HOSTILE: 25.0 + step / 100} for step in range(20, 101, 20)}
    run.launch(range(1, 101), scores=scores, metric=HOSTILE, unit=HOSTILE, strategy=HOSTILE)
    return folder


def write_report(folder: Path) -> str:
    write(make(make_run(folder)), folder)
    return (folder / "report.html").read_text(encoding="utf-8")


def write_comparison(folder: Path) -> str:
    return render_comparison(compare({HOSTILE: make_run(folder / "one"), "two": make_run(folder / "two")}))


def write_study_page(folder: Path) -> str:
    study = make_study(folder / HOSTILE.replace("/", "|"))
    study.folder.mkdir()
    study.environment |= {"began": HOSTILE, "unit": HOSTILE, "device": HOSTILE}
    study.settings["job"]["folder"] = HOSTILE
    return write_study(study, analyse(study))[0].read_text(encoding="utf-8")


def write_plan(folder: Path) -> str:
    job = PlannedJob(make_profile(spread=0.03), 1000, per_worker=True)
    links = [parse_link({"gbit": 1, "name": HOSTILE})]
    return render_plan(make_plan(job, load_cluster("office"), [1, 2, 4], links=links, steps=50_000))


def write_evaluation(folder: Path) -> str:
    sources, references = [f"{HOSTILE} {number}" for number in range(20)], [f"a {HOSTILE} {n}" for n in range(20)]
    text = ParallelText(HOSTILE, sources, references, ("en", "de"))
    settings = ScoringSettings(resamples=40)
    facts: SystemFacts = {"model": HOSTILE, "beam": 4, "length_penalty": 0.6, "seconds": 2.0, "words_per_second": 1e3}
    systems = [SystemOutput(HOSTILE, references[::-1], facts), SystemOutput("b", references, facts)]
    scored = evaluate_texts(text, [one.translations for one in systems], prepare_scoring(text, settings), settings)
    return render_evaluation(make_view(text, systems, scored))


@pytest.mark.parametrize("make_page", [write_report, write_comparison, write_study_page, write_plan, write_evaluation])
def test_hostile_text_changes_no_chart(browser: Browser, tmp_path: Path, make_page: Callable[[Path], str]) -> None:
    path = tmp_path / "hostile.html"
    path.write_text(make_page(tmp_path), encoding="utf-8")
    with open_page(browser, path) as page:
        assert page.locator(".plot").count() > 0
        assert page.evaluate(EMPTY_PLOTS) == []
        assert page.locator("img").count() == 0
        assert "<!--<script>" in page.locator("body").inner_text()
