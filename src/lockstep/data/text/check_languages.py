"""Finds sentence pairs that are in other languages than they should be."""

from typing import NamedTuple

import numpy as np

from lockstep.data.text import identify
from lockstep.data.text.lines import Counts, Lines, Mask, Positions

CHECKED_WORDS = 5
"""Shorter sentences may look like any language."""
CLEAR_MARGIN = 2.0
"""By how much another language must fit better, as `identify.score` counts. Of Multi30k none does; of untranslated or
French text, nearly all."""
LIKENESS = 0.25
"""In a sentence of a real language, the best language stands out this much from the others, as a share of its score. In a
sentence of made-up words it rarely does."""


class LanguageCheck(NamedTuple):
    """What the languages of some pairs look like."""

    swapped: Mask
    """The pairs whose sides fit the other language better, at least one of them clearly, `[pairs]`."""
    wrong: Mask
    """The pairs with a side that is clearly in another language, `[pairs]`."""
    checked: int
    """Sentences that were long enough."""
    natural: int
    """Those of them that look like a real language. If most do not, the text is made up, and the check means nothing."""


def check_languages(languages: tuple[str, str], sides: tuple[Lines, Lines], words: list[Counts]) -> LanguageCheck:
    """Compares the sentences of five words and more with common languages."""
    enough = [count >= CHECKED_WORDS for count in words]
    names = [identify.known_language(language) for language in languages] if any(map(np.any, enough)) else [None, None]
    results, checked, natural = [], 0, 0
    for side, lines in enumerate(sides):
        wrong, other = np.zeros(len(lines), bool), np.zeros(len(lines), bool)
        wanted, indices = names[side], np.flatnonzero(enough[side])
        if wanted is not None and len(indices):
            wrong[indices], other[indices], like = _compare(wanted, names[1 - side], lines, indices)
            checked, natural = checked + len(indices), natural + like
        results.append((wrong, other))
    (wrong, other), (wrong_target, other_target) = results
    wrong |= wrong_target
    return LanguageCheck(other & other_target & wrong, wrong, checked, natural)


def _compare(wanted: str, translated: str | None, lines: Lines, indices: Positions) -> tuple[Mask, Mask, int]:
    """Marks the sentences that are clearly in another language, and those that fit the language `translated` better. Also
    returns how many look like a real language."""
    rivals = identify.choose_rivals(wanted, [name for name in (wanted, translated) if name is not None])
    sentences = identify.Sentences(lines.data, lines.starts[indices], lines.ends[indices])
    scores = identify.score(sentences, [wanted, *rivals])
    lead = scores[:, 1:] - scores[:, :1]  # [sentences, rivals]
    clear = lead.max(1, initial=-np.inf) > CLEAR_MARGIN
    for place in np.flatnonzero(clear):  # the model knows no text in capitals
        clear[place] = not lines.sentences[indices[place]].isupper()
    best = scores.max(1)
    natural = int((best - np.median(scores, 1) > LIKENESS * np.abs(best)).sum())
    other = lead[:, rivals.index(translated)] > 0 if translated in rivals else np.zeros(len(indices), bool)
    return clear, other, natural
