"""Decoding with the compiled kernels computes what torch's operators compute."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lockstep.models import decoding, kernels
from lockstep.models.model_settings import TransformerSettings
from lockstep.models.packed import Layout
from lockstep.models.transformer import LayerCache, Transformer
from lockstep.translate.search import Decodable, search
from lockstep.translate.search_settings import SearchSettings

pytestmark = [
    pytest.mark.skipif(not kernels.are_available(), reason="the kernels are not compiled here"),
    pytest.mark.usefixtures("native_library"),
]
LENGTHS = np.array([7, 1, 20, 3, 12])
BEAM, VOCABULARY = 3, 61


def make_model(norm: str, width: int = 40, heads: int = 5) -> Transformer:
    settings = TransformerSettings.model_validate(
        {"encoder_layers": 2, "decoder_layers": 2, "width": width, "feed_forward": 56, "heads": heads, "norm": norm}
    )
    torch.manual_seed(0)
    model = Transformer(settings, VOCABULARY).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def draw_source() -> Tensor:
    return torch.randint(4, VOCABULARY, (int(LENGTHS.sum()),), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("width", "heads"), [(40, 5), (64, 2), (36, 2)])
@torch.inference_mode()
def test_every_step_has_the_logits_of_torch(norm: str, width: int, heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hypotheses are reordered after every word, and sentences leave the batch."""
    model, layout = make_model(norm, width, heads), Layout.from_lengths(LENGTHS)
    memory = model.encode(draw_source(), layout)
    native: list[Any] = model.start(memory, layout, BEAM)
    monkeypatch.setattr(decoding, "are_kernels_used", lambda x: False)
    plain: list[Any] = model.start(memory, layout, BEAM)
    assert [type(caches[0]) for caches in (native, plain)] == [decoding.NativeCache, LayerCache]
    draw = torch.Generator().manual_seed(2)
    rows = len(LENGTHS)
    for position in range(40):
        ids = torch.randint(4, VOCABULARY, (rows, BEAM), generator=draw)
        expected, logits = model.step(ids, position, plain), model.step(ids, position, native)
        assert logits.shape == expected.shape == (rows, BEAM, VOCABULARY)
        assert (logits - expected).abs().max() < 1e-4 * expected.abs().max()
        staying = torch.tensor([row for row in range(rows) if (position, row) not in ((3, 1), (9, 0), (30, 1))])
        origin = torch.randint(0, BEAM, (rows, BEAM), generator=draw) + BEAM * torch.arange(rows)[:, None]
        remaining = staying if len(staying) < rows else None
        for cache in (*plain, *native):
            cache.select(origin[staying].flatten(), remaining)
        rows = len(staying)
    assert rows == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("vocabulary", "count"), [(3, 4), (61, 10), (1000, 10), (4099, 2)])
def test_the_best_words_are_those_of_torch(vocabulary: int, count: int, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(3)
    logits = (4 * torch.randn(6, BEAM, vocabulary, generator=draw)).to(dtype)
    scores = -torch.rand(6, BEAM, generator=draw)
    scores[2, 1:] = -torch.inf
    everything = (scores[..., None] + logits.float().log_softmax(-1)).flatten(1)
    expected, _ = everything.topk(min(count, vocabulary), dim=1)
    given, places = decoding.find_best_words(logits, scores, count)
    known = min(count, vocabulary)
    assert (given[:, :known] - expected).abs().max() < 1e-4
    assert (everything.gather(1, places[:, :known]) - expected).abs().max() < 1e-4
    assert all(len(set(row)) == known for row in places[:, :known].tolist())


def test_of_equal_scores_the_first_word_is_taken() -> None:
    _, places = decoding.find_best_words(torch.zeros(1, 2, 50), torch.zeros(1, 2), 4)
    assert places.tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("beam", [1, 4])
@torch.no_grad()
def test_a_search_finds_the_translations_of_torch(norm: str, beam: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Decodable[Any, Any] = make_model(norm)
    settings = SearchSettings(beam=beam, max_ratio=1.0)
    native = search(model, draw_source(), LENGTHS, settings, 2, 3)
    monkeypatch.setattr(decoding, "are_kernels_used", lambda x: False)
    plain = search(model, draw_source(), LENGTHS, settings, 2, 3)
    assert [best[0].ids for best in native] == [best[0].ids for best in plain]
    scores = [[best[0].score for best in results] for results in (native, plain)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@torch.no_grad()
def test_bf16_products_are_near_those_of_fp32() -> None:
    model, layout = make_model("pre"), Layout.from_lengths(LENGTHS)
    logits = []
    for is_half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            caches = model.start(model.encode(draw_source(), layout), layout, BEAM)
            assert isinstance(caches[0], decoding.NativeCache)
            logits.append(model.step(torch.full((5, BEAM), 7), 0, caches))
    assert [one.dtype for one in logits] == [torch.float32, torch.bfloat16]
    assert (logits[0] - logits[1].float()).abs().max() < 0.05 * logits[0].abs().max()
