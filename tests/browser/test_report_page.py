"""The page as a person sees it: in a real browser, without a network, on desk and phone, by day and by night."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from conftest import Tiny, lockstep
from lockstep.explain.report import make, write
from madeup import MadeUp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OUTPUT = Path(os.environ.get("LOCKSTEP_TEST_OUTPUT") or Path(__file__).parents[1] / "output")
DRAWN = "[...document.querySelectorAll('.plot')].every(plot => plot.dataset.drawn === 'yes')"
MARKS = """
[...document.querySelectorAll('.plot')].map(plot => {
  const marks = [...plot.querySelectorAll('.scatterlayer .trace path, .barlayer .point path')];
  const seen = marks.filter(mark => { const box = mark.getBoundingClientRect(); return box.width + box.height > 0; });
  return [plot.id, seen.length, plot.getAttribute('aria-label').length];
})
"""
CONTRAST = """
[...document.querySelectorAll('.chip, .muted, summary, dt, p, h2, td, th, .legend span')].map(node => {
  const light = text => {
    const parts = text.match(/[0-9.]+/g).slice(0, 3).map(part => part / 255);
    const [r, g, b] = parts.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let ground = node;
  while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
  const pair = [light(getComputedStyle(node).color), light(getComputedStyle(ground).backgroundColor)].sort((a, b) => b - a);
  return [(pair[0] + 0.05) / (pair[1] + 0.05), node.className || node.tagName];
})
"""

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (Debian package chromium)")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as tools:
        found = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] if os.getuid() == 0 else [])
        yield found
        found.close()


@pytest.fixture(scope="module")
def trained(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of two workers; its training made the report."""
    run = tmp_path_factory.mktemp("runs") / "trained"
    settings = ("train.steps=60", "train.evaluate_every=10", "train.checkpoint_every=20")
    lockstep("train", tiny.config, *settings, "--workers", 2, "--run", run)
    return run / "report.html"


def until(page: Page, condition: str, seconds: float = 30.0) -> None:
    """The page forbids `eval`, which the browser driver's own waiting needs."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"not in {seconds} seconds: {condition}"
        time.sleep(0.05)


@contextmanager
def opened(browser: Browser, path: Path, width: int = 1200, scheme: str = "light") -> Iterator[Page]:
    """The page with all charts drawn; fails when the browser complains or anything but the file is asked for."""
    dark = scheme == "dark"
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
    )
    page, complaints, asked = context.new_page(), list[str](), list[str]()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    until(page, DRAWN)
    yield page
    assert complaints == []
    assert asked == [path.as_uri()]
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [375, 1200])
def test_every_chart_is_drawn_and_nothing_sticks_out(browser: Browser, trained: Path, width: int, scheme: str) -> None:
    with opened(browser, trained, width, scheme) as page:
        charts = page.evaluate(MARKS)
        assert len(charts) >= 13
        for name, marks, words in charts:
            assert marks > 0, f"{name} is empty"
            assert words > 20, f"{name} has no text for those who cannot see it"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        OUTPUT.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=OUTPUT / f"report-{width}-{scheme}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_its_ground(browser: Browser, trained: Path, scheme: str) -> None:
    """4.5 to 1 is what the accessibility guidelines ask of text."""
    with opened(browser, trained, scheme=scheme) as page:
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        weak = [(ratio, name) for ratio, name in page.evaluate(CONTRAST) if ratio < 4.5]
        assert weak == []


def test_every_chart_has_its_figures_as_a_table(browser: Browser, trained: Path) -> None:
    with opened(browser, trained) as page:
        for figure in page.locator("figure").all():
            figure.locator("summary").click()
            assert figure.locator("tbody tr").count() > 0
            assert figure.locator("tbody tr").first.is_visible()


def test_a_question_of_the_overview_leads_to_its_answer(browser: Browser, trained: Path) -> None:
    with opened(browser, trained, 375) as page:
        page.get_by_role("link", name="Was the network the bottleneck?").click()
        assert page.locator("#q5").is_visible()
        until(page, "Math.abs(document.getElementById('q5').getBoundingClientRect().top) < innerHeight")


def test_colours_follow_when_the_evening_comes(browser: Browser, trained: Path) -> None:
    with opened(browser, trained) as page:
        fill = "getComputedStyle(document.querySelector('#wall-time .barlayer .point path')).fill"
        before = page.evaluate(fill)
        page.emulate_media(color_scheme="dark")
        until(page, f"{fill} !== '{before}'")


def test_print_is_light_and_open(browser: Browser, trained: Path) -> None:
    with opened(browser, trained, scheme="dark") as page:
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
    with opened(browser, tmp_path / "report.html") as page:
        marks = {name: count for name, count, _ in page.evaluate(MARKS)}
        assert min(marks["reference-score"], marks["reference-loss"], marks["reference-rate"]) > 0


@pytest.mark.parametrize("steps", [0, 3, 8])
def test_a_run_of_few_steps_has_a_page_without_complaints(browser: Browser, tmp_path: Path, steps: int) -> None:
    MadeUp(tmp_path).launch(range(1, steps + 1), stop=None)
    write(make(tmp_path), tmp_path)
    with opened(browser, tmp_path / "report.html", 375) as page:
        assert page.locator("section").count() > 10
        assert page.evaluate("document.documentElement.scrollWidth") <= 375
