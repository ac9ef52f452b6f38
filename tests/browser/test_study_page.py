"""A study's page as a person sees it."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lockstep.lab.study.results import analyse
from lockstep.lab.study.study_page import write_study
from pages import CHROMIUM, CONTRAST, MARKS, open_page, save_screenshot
from studies import make_study

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (Debian package chromium)")


@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), (1200, "light")])
def test_every_chart_is_drawn_and_everything_can_be_read(
    browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    study = make_study(tmp_path)
    with open_page(browser, write_study(study, analyse(study))[0], width, scheme) as page:
        charts = page.evaluate(MARKS)
        assert [name for name, marks, words in charts if not marks or words < 20] == []
        assert {name for name, _, _ in charts} == {"speedup-none-500", "words-per-second", "phases", "lost"}
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert [name for ratio, name in page.evaluate(CONTRAST) if ratio < 4.5] == []
        save_screenshot(page, f"study-{width}-{scheme}")
