"""The page of an evaluation as a person sees it."""

from itertools import islice
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from lockstep.cli.evaluate_output import SystemFacts, SystemOutput, make_view
from lockstep.demo_corpus import generate_pairs
from lockstep.explain.pages.evaluation_page import render_evaluation
from lockstep.translate.score_texts import ParallelText, ScoringSettings, evaluate_texts, prepare_scoring
from pages import CHROMIUM, CONTRAST, MARKS, open_page, save_screenshot

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (Debian package chromium)")


def write_page(path: Path, models: int) -> None:
    """Scores translations in which some words are missing: every third, every fourth."""
    sources, references = zip(*islice(generate_pairs(1, "test"), 40), strict=True)
    text = ParallelText("news.en, news.de", list(sources), list(references), ("en", "de"))
    settings = ScoringSettings(resamples=100)
    facts: SystemFacts = {"model": "a/run", "beam": 4, "length_penalty": 0.6, "seconds": 2.0, "words_per_second": 1e3}
    facts |= {"loss": 1.25, "Eval_BLEU_Score": 0.4, "split": 3, "limit": 20}
    systems = []
    for number in range(models):
        left = [" ".join(word for i, word in enumerate(one.split()) if (i + 1) % (3 + number)) for one in references]
        systems.append(SystemOutput(f"runs/model-{number}", left, facts))
    scored = evaluate_texts(text, [one.translations for one in systems], prepare_scoring(text, settings), settings)
    path.write_text(render_evaluation(make_view(text, systems, scored)), encoding="utf-8")


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), (1200, "light")])
def test_every_chart_is_drawn_and_everything_can_be_read(
    browser: Browser, tmp_path: Path, models: int, width: int, scheme: str
) -> None:
    path = tmp_path / "page.html"
    write_page(path, models)
    expected = {"scores", "lengths"} if models == 1 else {"score-0", "score-1", "lengths-bleu", "lengths-chrf"}
    with open_page(browser, path, width, scheme) as page:
        charts = page.evaluate(MARKS)
        assert [name for name, marks, words in charts if not marks or words < 20] == []
        assert {name for name, _, _ in charts} == expected
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        contrast = CONTRAST.replace(".chip,", ".chip, mark,")
        assert [name for ratio, name in page.evaluate(contrast) if ratio < 4.5] == []
        save_screenshot(page, f"evaluation-{models}-{width}-{scheme}")
