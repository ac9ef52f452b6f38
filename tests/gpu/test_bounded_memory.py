"""Evaluation and search on devices whose memory does not suffice for all at once."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from device_stand_ins import META, counting_waits
from lockstep.models.make_model import make_model
from lockstep.models.model_settings import TransformerSettings
from lockstep.tasks import translation
from lockstep.tasks.translation import score_words
from lockstep.translate import search as searching
from lockstep.translate.search import search
from lockstep.translate.search_settings import SearchSettings

VOCABULARY = 40
SETTINGS = TransformerSettings(encoder_layers=1, decoder_layers=1, width=16, feed_forward=32, heads=2)


def make_small_model() -> Any:
    torch.manual_seed(1)
    return make_model(SETTINGS, VOCABULARY).eval().requires_grad_(False)


def test_a_search_that_does_not_fit_is_made_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    model, lengths = make_small_model(), np.array([5, 4, 3, 7, 2])
    ids = torch.arange(int(lengths.sum())) % 37 + 3
    settings = SearchSettings(beam=2, max_words=6)
    expected = search(model, ids, lengths, settings, 1, 2)
    sizes, done = list[int](), list[int]()
    real = searching._search

    def run_with_little_memory(model: Any, ids: Tensor, lengths: np.ndarray, *rest: Any) -> Any:
        sizes.append(len(lengths))
        if len(lengths) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return real(model, ids, lengths, *rest)

    monkeypatch.setattr(searching, "_search", run_with_little_memory)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    found = search(model, ids, lengths, settings, 1, 2, done.append)
    assert [[best.ids for best in one] for one in found] == [[best.ids for best in one] for one in expected]
    assert sizes == [5, 2, 3, 1, 2]
    assert done == sorted(done)
    monkeypatch.setattr(searching, "_search", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
    with pytest.raises(torch.OutOfMemoryError):
        search(model, ids[:5], lengths[:1], settings, 1, 2)


def test_an_evaluation_makes_few_logits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All target words of a part times the vocabulary, in fp32, were in memory at once."""
    monkeypatch.setattr(translation, "DEVICE_BLOCK_SCORES", 10 * VOCABULARY)
    rows = list[int]()
    model = make_small_model().to(META)
    logits = model.logits

    def count_rows(vectors: Tensor) -> Tensor:
        rows.append(len(vectors))
        result: Tensor = logits(vectors)
        return result

    monkeypatch.setattr(model, "logits", count_rows)
    with counting_waits(monkeypatch) as counted:
        target = torch.zeros(33, dtype=torch.int64, device=META)
        _, predictions = score_words(model, torch.zeros(33, 16, device=META), target)
    assert rows == [10, 10, 10, 3]
    assert predictions.shape == (33,)
    assert counted.waits == ["_local_scalar_dense"], "once per part, not per block"


def test_blocks_give_the_loss_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_small_model()
    vectors, target = torch.randn(33, 16), torch.arange(33)
    whole, best = score_words(model, vectors, target)

    class OnDevice(Tensor):
        device = META

    monkeypatch.setattr(translation, "DEVICE_BLOCK_SCORES", 10 * VOCABULARY)
    parts, best_of_parts = score_words(model, vectors.as_subclass(OnDevice), target)
    assert parts == pytest.approx(whole, rel=1e-6)
    assert torch.equal(best_of_parts.as_subclass(Tensor), best)
