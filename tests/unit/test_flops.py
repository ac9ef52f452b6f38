"""FLOPs are counted as a person would count them by hand, for every kernel."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.models.make_model import make_model
from lockstep.models.model_settings import LstmSettings, TransformerSettings, TranslationSettings
from lockstep.models.packed import Layout
from lockstep.models.transformer import EXPLICIT_LIMIT
from lockstep.tasks.translation import PairBatch, TranslationLoss
from lockstep.watch.flops import FlopCount, _count_rnn, _count_varlen_attention, _count_varlen_attention_backward

VOCABULARY, WIDTH, FEED_FORWARD = 50, 16, 24


def make_translation(
    source: list[int], target: list[int], dropout: float = 0.1, model: TranslationSettings | None = None
) -> tuple[TranslationLoss, PairBatch]:
    settings = model or TransformerSettings(
        encoder_layers=2, decoder_layers=3, width=WIDTH, feed_forward=FEED_FORWARD, heads=4, dropout=dropout
    )
    words = [torch.randint(VOCABULARY, (sum(lengths),)) for lengths in (source, target, target)]
    layouts = [Layout.from_lengths(np.array(lengths)) for lengths in (source, target)]
    batch = PairBatch(words[0], layouts[0], words[1], words[2], layouts[1], sum(source), sum(target))
    return TranslationLoss(make_model(settings, VOCABULARY), 0.1), batch


def count_by_hand(source: list[int], target: list[int]) -> int:
    """Two for every multiplication with an addition; the backward pass takes every product twice more. Attention works
    on a grid as wide as the longest sentence."""
    s, t, grid_s, grid_t = sum(source), sum(target), max(source), max(target)
    rows = len(source)
    encoder = s * (4 * WIDTH**2 + 2 * WIDTH * FEED_FORWARD) + 2 * rows * grid_s**2 * WIDTH
    decoder = t * (4 * WIDTH**2 + 2 * WIDTH * FEED_FORWARD) + 2 * rows * grid_t**2 * WIDTH
    cross = (2 * t + 2 * s) * WIDTH**2 + 2 * rows * grid_t * grid_s * WIDTH
    return 3 * 2 * (2 * encoder + 3 * (decoder + cross) + t * WIDTH * VOCABULARY)


def count_flops(module: nn.Module, batch: PairBatch) -> int:
    counter = FlopCount()
    with counter:
        module(batch).backward()
    return counter.total


def test_a_transformer_is_counted_as_by_hand() -> None:
    source, target = [5, 3, 7], [4, 6, 2]
    assert count_flops(*make_translation(source, target)) == count_by_hand(source, target)


@pytest.mark.parametrize("source", [[5, 5, 5], [5, 3, 7]])
def test_an_lstm_is_counted_as_by_hand(source: list[int]) -> None:
    """Sentences of equal length take another kernel than others."""
    target, rows = [7, 7, 7], 3
    settings = LstmSettings(encoder_layers=2, decoder_layers=3, width=WIDTH)
    first, above = 4 * WIDTH * (WIDTH + WIDTH), 4 * WIDTH * (2 * WIDTH + WIDTH)
    units = sum(source) * 2 * (first + above) + sum(target) * (first + 2 * above)
    attention = 2 * rows * max(target) * max(source) * WIDTH
    expected = 3 * 2 * (units + attention + sum(target) * WIDTH * VOCABULARY)
    if len(set(source)) > 1:  # there the zeros that come before a first word have no gradient; backward, one is first
        expected -= 2 * 2 * (rows + 1) * 4 * WIDTH**2
    assert count_flops(*make_translation(source, target, model=settings)) == expected


def test_a_fused_lstm_counts_every_matrix_once_for_every_word() -> None:
    """cuDNN's, which needs a GPU: words, and weights of one layer with two directions."""
    weights = [torch.empty(4 * 8, 6), torch.empty(4 * 8, 8), torch.empty(4 * 8), torch.empty(4 * 8)] * 2
    assert _count_rnn(torch.empty(11, 6), weights, 4, None) == 2 * 11 * 2 * 4 * 8 * (6 + 8)
    assert _count_rnn(torch.empty(11, 1, 6), weights, 4, None) == 2 * 11 * 2 * 4 * 8 * (6 + 8)


def test_the_fused_attention_of_long_sentences_is_counted_too() -> None:
    length = EXPLICIT_LIMIT + 40
    attentions = 2 + 2 * 3
    scores_again = attentions * 2 * length**2 * WIDTH  # the fused backward computes them a second time
    total = count_flops(*make_translation([length], [length], dropout=0.0))
    assert total == count_by_hand([length], [length]) + scores_again


def test_passes_add_up_and_nothing_is_counted_outside() -> None:
    module, batch = make_translation([4, 4], [5, 5])
    counter = FlopCount()
    for _ in range(2):
        with counter:
            module(batch).backward()
        module(batch).backward()
    assert counter.total == 2 * count_by_hand([4, 4], [5, 5])


def test_convolutions_are_counted() -> None:
    counter = FlopCount()
    with counter:
        nn.Conv2d(3, 8, 3, bias=False)(torch.randn(2, 3, 10, 10))
    assert counter.total == 2 * 2 * 8 * 8 * 8 * 3 * 9


def test_packed_attention_counts_pairs_of_words_and_no_padding() -> None:
    query, offsets = torch.empty(9, 2, 8), torch.tensor([0, 2, 9], dtype=torch.int32)
    forward = _count_varlen_attention(query, query, query, offsets, offsets, 7, 7, window_size=(-1, 0))
    assert forward == 4 * (2 * 2 + 7 * 7) * 2 * 8
    backward = _count_varlen_attention_backward(query, query, query, query, query, query, offsets, offsets, 7, 7, True)
    assert backward == forward * 5 // 2


def test_a_product_that_cannot_be_counted_makes_the_count_zero_and_changes_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise TypeError("another shape")

    counter = FlopCount()
    monkeypatch.setitem(counter._formulas, "aten.bmm", fail)
    with counter:
        torch.ones(2, 2) @ torch.ones(2, 2)
        product = torch.ones(3, 2, 2) @ torch.ones(3, 2, 2)
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert product.sum() == 3 * 4 * 2
    assert counter.total == 0


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_counting_changes_no_bit(dropout: float) -> None:
    module, batch = make_translation([5, 3, 7], [4, 6, 2], dropout)

    def gradients() -> list[bytes]:
        module.zero_grad()
        torch.manual_seed(3)
        module(batch).backward()
        return [p.grad.numpy().tobytes() for p in module.parameters() if p.grad is not None]

    plain = gradients()
    with FlopCount():
        assert gradients() == plain


def test_counting_leaves_torch_s_compiler_alone() -> None:
    program = (
        "import sys, torch\nfrom lockstep.watch.flops import FlopCount\n"
        "with FlopCount() as counter:\n    torch.ones(3, 3) @ torch.ones(3, 3)\n"
        "print(counter.total, 'torch._dynamo' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "54 False\n"
