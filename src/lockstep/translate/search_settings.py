"""Settings of beam search: the `search` section, used in evaluation and by `lockstep translate`."""

from typing import Literal

from pydantic import Field

from lockstep.settings import Settings


class SearchSettings(Settings):
    """Beam search, which turns the probabilities of the model into sentences."""

    beam: int = Field(4, ge=1)
    """Hypotheses per sentence in each step of the search. 1 is greedy decoding: faster, usually a little worse."""
    length_penalty: float = Field(0.6, ge=0.0)
    """Exponent of the length penalty, by which the log-probability of a translation is divided; see search.normalise.
    Higher values favour longer translations; 0 turns it off."""
    normalise: Literal["length", "gnmt"] = "length"
    """The length penalty. `length`: pieces^length_penalty, as CTranslate2 computes it, so that an export finds the same
    translations. `gnmt`: ((5 + pieces) / 6)^length_penalty, as in runs of version 0.1.0, which keep it. The end mark is
    counted in both."""
    batch_words: int = Field(4000, ge=1)
    """Source words (pieces) translated at once. Lower it if memory runs out."""
    max_ratio: float = Field(2.0, gt=0.0)
    """Longest translation: this many times the number of source pieces, plus ten."""
    max_words: int | None = Field(512, ge=1)
    """Longest translation in pieces, however long its source is. A translation that reaches it is cut off there; an
    evaluation says how many sentences were. null: no limit."""
