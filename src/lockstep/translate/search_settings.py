"""Settings of beam search: the `search` section, used in evaluation and by `lockstep translate`."""

from pydantic import Field

from lockstep.settings import Settings


class SearchSettings(Settings):
    """Beam search."""

    beam: int = Field(4, ge=1)
    """Hypotheses kept per sentence; 1 is greedy decoding."""
    length_penalty: float = Field(0.6, ge=0.0)
    """Exponent of the length penalty ((5 + length) / 6): higher favours longer translations."""
    batch_words: int = Field(4000, ge=1)
    """Source words decoded together."""
    max_ratio: float = Field(2.0, gt=0.0)
    """A translation has at most this many times the source's pieces, plus ten."""
