"""The report page in a real browser, without a network: wide and narrow, light and dark."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from conftest import Tiny, lockstep
from lockstep.explain.report import make, write
from madeup import MadeUp
from pages import CHROMIUM, CONTRAST, MARKS, open_page, save_screenshot, wait_until

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (Debian package chromium)")


@pytest.fixture(scope="module")
def trained(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trains with two workers and returns the page that the training wrote."""
    run = tmp_path_factory.mktemp("runs") / "trained"
    settings = ("train.steps=60", "train.evaluate_every=10", "train.checkpoint_every=20")
    lockstep("train", tiny.config, *settings, "--workers", 2, "--run", run)
    return run / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1200])
def test_every_chart_is_drawn_and_the_page_does_not_overflow(
    browser: Browser, trained: Path, width: int, scheme: str
) -> None:
    with open_page(browser, trained, width, scheme) as page:
        charts = page.evaluate(MARKS)
        assert len(charts) >= 13
        for name, marks, words in charts:
            assert marks > 0, f"{name} is empty"
            assert words > 20, f"{name} has no text for screen readers"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        save_screenshot(page, f"report-{width}-{scheme}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser: Browser, trained: Path, scheme: str) -> None:
    """The accessibility guidelines (WCAG) require a ratio of 4.5 to 1."""
    with open_page(browser, trained, scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        weak = [(ratio, name) for ratio, name in page.evaluate(CONTRAST) if ratio < 4.5]
        assert weak == []


@pytest.fixture(scope="module")
def faulty(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trains with a worker that is killed once and returns the page."""
    run = tmp_path_factory.mktemp("runs") / "faulty"
    settings = ("train.steps=24", "train.checkpoint_every=8", "train.save=wait", "train.restarts=1")
    fault = "kill:phase=backward:rank=1:step=12:restarts=0"
    lockstep("train", tiny.config, *settings, "--workers", 2, "--run", run, fault=fault)
    return run / "report.html"


@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), (1200, "light")])
def test_what_went_wrong_can_be_read(browser: Browser, faulty: Path, width: int, scheme: str) -> None:
    with open_page(browser, faulty, width, scheme) as page:
        page.get_by_role("link", name="What went wrong").click()
        section = page.locator("#faults")
        assert section.locator("li strong").first.inner_text() == "Worker 1 died: somebody killed its process"
        assert "All workers were started again from the checkpoint of step 8." in section.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [name for ratio, name in page.evaluate(CONTRAST) if ratio < 4.5] == []
        section.scroll_into_view_if_needed()
        save_screenshot(page, f"faults-{width}-{scheme}")


def test_every_chart_has_its_figures_as_a_table(browser: Browser, trained: Path) -> None:
    with open_page(browser, trained) as page:
        for figure in page.locator("figure").all():
            figure.locator("summary").click()
            assert figure.locator("tbody tr").count() > 0
            assert figure.locator("tbody tr").first.is_visible()


def test_a_question_in_the_overview_links_to_its_answer(browser: Browser, trained: Path) -> None:
    with open_page(browser, trained, 375) as page:
        page.get_by_role("link", name="Was the network the bottleneck?").click()
        assert page.locator("#q5").is_visible()
        wait_until(page, "Math.abs(document.getElementById('q5').getBoundingClientRect().top) < innerHeight")


def test_charts_change_colours_with_the_colour_scheme(browser: Browser, trained: Path) -> None:
    with open_page(browser, trained) as page:
        fill = "getComputedStyle(document.querySelector('#wall-time .barlayer .point path')).fill"
        before = page.evaluate(fill)
        page.emulate_media(color_scheme="dark")
        wait_until(page, f"{fill} !== '{before}'")


def test_printing_uses_light_colours_and_opens_the_evidence(browser: Browser, trained: Path) -> None:
    with open_page(browser, trained, scheme="dark") as page:
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        assert page.evaluate("[...document.querySelectorAll('details.evidence')].every(one => one.open)")


def test_the_reference_curve_is_drawn(browser: Browser, tmp_path: Path) -> None:
    config = Path(__file__).parents[2] / "configs" / "transformer-base-wmt16.yaml"
    run = MadeUp(tmp_path, hosts=["one", "two"])
    (tmp_path / "config.yaml").write_text(config.read_text())
    scores = {step: {"loss": 1.6, "sacrebleu": 25.0, "Eval_BLEU_Score": 0.35} for step in range(4000, 60_001, 4000)}
    run.launch(range(500, 60_001, 500), workers=4, scores=scores)
    write(make(tmp_path), tmp_path)
    with open_page(browser, tmp_path / "report.html") as page:
        marks = {name: count for name, count, _ in page.evaluate(MARKS)}
        assert min(marks["reference-score"], marks["reference-loss"], marks["reference-rate"]) > 0


@pytest.mark.parametrize("steps", [0, 3, 8])
def test_a_run_of_few_steps_has_a_page_without_errors(browser: Browser, tmp_path: Path, steps: int) -> None:
    MadeUp(tmp_path).launch(range(1, steps + 1), stop=None)
    write(make(tmp_path), tmp_path)
    with open_page(browser, tmp_path / "report.html", 375) as page:
        assert page.locator("section").count() > 10
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
