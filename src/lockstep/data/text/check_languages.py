"""Finds sentence pairs that are in other languages than they should be."""

import numpy as np

from lockstep.data.text import identify
from lockstep.data.text.lines import Counts, Lines, Mask, Positions

CHECKED_WORDS = 5
"""Shorter sentences may look like any language."""
CLEAR_MARGIN = 2.0
"""By how much another language must fit better, as `identify.score` counts. Of Multi30k none does; of untranslated or
French text, nearly all."""


def find_wrong_languages(
    languages: tuple[str, str], sides: tuple[Lines, Lines], words: list[Counts]
) -> tuple[Mask, Mask]:
    """Marks the pairs whose sides are swapped, and those with a side that is clearly in another language. Swapped: each
    side fits the other language better, at least one of them clearly."""
    enough = [count >= CHECKED_WORDS for count in words]
    names = [identify.known_language(language) for language in languages] if any(map(np.any, enough)) else [None, None]
    results = []
    for side, lines in enumerate(sides):
        wrong, other = np.zeros(len(lines), bool), np.zeros(len(lines), bool)
        wanted, indices = names[side], np.flatnonzero(enough[side])
        if wanted is not None and len(indices):
            wrong[indices], other[indices] = _compare(wanted, names[1 - side], lines, indices)
        results.append((wrong, other))
    (wrong, other), (wrong_target, other_target) = results
    wrong |= wrong_target
    return other & other_target & wrong, wrong


def _compare(wanted: str, translated: str | None, lines: Lines, indices: Positions) -> tuple[Mask, Mask]:
    """Marks the sentences that are clearly in another language, and those that fit the language `translated` better."""
    rivals = identify.choose_rivals(wanted, [name for name in (wanted, translated) if name is not None])
    sentences = identify.Sentences(lines.data, lines.starts[indices], lines.ends[indices])
    scores = identify.score(sentences, [wanted, *rivals])
    lead = scores[:, 1:] - scores[:, :1]  # [sentences, rivals]
    clear = lead.max(1, initial=-np.inf) > CLEAR_MARGIN
    for place in np.flatnonzero(clear):  # the model knows no text in capitals
        clear[place] = not lines.sentences[indices[place]].isupper()
    return clear, lead[:, rivals.index(translated)] > 0 if translated in rivals else np.zeros(len(indices), bool)
