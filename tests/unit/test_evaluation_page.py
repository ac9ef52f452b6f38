"""The page of an evaluation: differences are marked word by word, text is escaped, and every figure is there."""

import json
import re
from dataclasses import dataclass, replace

import pytest

from lockstep.explain.pages.evaluation_page import (
    DrawnScore,
    EvaluationView,
    MarkedWords,
    mark_differences,
    mark_sentence,
    render_evaluation,
)


@dataclass(frozen=True)
class Group:
    words: str
    sentences: int
    sacrebleu: float
    chrf: float
    length_ratio: float


@dataclass(frozen=True)
class Sentence:
    line: int
    source: str
    reference: str
    translations: tuple[str, ...]
    chrf: tuple[float, ...]


ONE = EvaluationView(
    models=["runs/<demo>"],
    text="news.en, news.de",
    sentences=2500,
    verdict=["sacreBLEU is 34.34 (95 % interval 33.10 to 35.60)."],
    scores=[
        DrawnScore("sacreBLEU", [34.34], [(33.1, 35.6)], "nrefs:1|tok:13a"),
        DrawnScore("chrF", [58.21], [None], "nrefs:1|nc:6", "a note"),
    ],
    by_length=[[Group("1-10", 2000, 36.0, 60.0, 1.01), Group("over 50", 500, 20.0, 40.0, 0.8)]],
    worst=[Sentence(7, "a <b> dog", "ein Hund", ("eine Katze",), (12.3,))],
    most_different=[],
    details=[("search", "beam 4, length penalty 0.6")],
    notes=["computed in fp32"],
)
TWO = replace(
    ONE,
    models=["runs/a", "runs/b"],
    scores=[DrawnScore("sacreBLEU", [34.34, 35.0], [(33.1, 35.6), (33.8, 36.2)], "nrefs:1|tok:13a")],
    by_length=[ONE.by_length[0], ONE.by_length[0]],
    worst=[],
    most_different=[Sentence(7, "a dog", "ein Hund", ("eine Katze", "ein Hund"), (12.3, 100.0))],
    details=[("loss", "1.1", "1.2")],
)


def read_figures(page: str) -> dict[str, dict[str, object]]:
    found = re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def test_words_that_the_other_text_lacks_are_marked() -> None:
    marked = mark_differences("ein alter Mann läuft schnell", "ein Mann rennt schnell")
    assert marked == [
        MarkedWords("ein", False),
        MarkedWords("alter", True),
        MarkedWords("Mann", False),
        MarkedWords("läuft", True),
        MarkedWords("schnell", False),
    ]
    assert mark_differences("", "ein Mann") == []


def test_words_of_the_reference_are_marked_if_no_translation_has_them() -> None:
    sentence = mark_sentence(Sentence(1, "x", "ein alter Mann", ("ein Mann", "alter Mann"), (80.0, 80.0)), ("a", "b"))
    assert sentence.reference == [MarkedWords("ein alter Mann", False)]
    alone = mark_sentence(Sentence(1, "x", "ein alter Mann", ("ein Mann",), (80.0,)), ("a",))
    assert [part.text for part in alone.reference if part.is_marked] == ["alter"]


def test_one_model_has_a_chart_of_its_scores_and_one_by_length() -> None:
    page = render_evaluation(ONE)
    assert set(read_figures(page)) == {"scores", "lengths"}
    assert "runs/&lt;demo&gt;" in page
    assert "a &lt;b&gt; dog" in page
    assert '<mark class="other">eine Katze</mark>' in page
    assert "Where they differ most" not in page
    for shown in ("2,500 sentences", "nrefs:1|nc:6", "a note", "over 50", "computed in fp32", "not computed"):
        assert shown in page


def test_two_models_have_a_chart_for_each_score_and_the_sentences_where_they_differ() -> None:
    page = render_evaluation(TWO)
    assert set(read_figures(page)) == {"score-0", "lengths-bleu", "lengths-chrf"}
    assert "Where they differ most" in page
    assert "Worst sentences" not in page
    assert "first: runs/a" in page
    assert "second: runs/b" in page


@pytest.mark.parametrize("view", [ONE, TWO])
def test_intervals_are_drawn_around_the_scores(view: EvaluationView) -> None:
    figure = read_figures(render_evaluation(view))["scores" if view is ONE else "score-0"]
    first = figure["data"][0]  # type: ignore[index]
    assert first["x"] == [34.34]
    assert first["error_x"]["array"] == [pytest.approx(35.6 - 34.34)]
    assert first["error_x"]["arrayminus"] == [pytest.approx(34.34 - 33.1)]
