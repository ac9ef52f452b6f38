from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from lockstep.config import load
from lockstep.models import transformer
from lockstep.models.make_model import make_model
from lockstep.models.model_settings import TransformerSettings
from lockstep.models.packed import Layout
from lockstep.models.transformer import Transformer, attend

VOCABULARY = 20
MIXED = np.array([5, 1, 3, 7])
NORMS = pytest.mark.parametrize("norm", ["pre", "post"])


def small(norm: Literal["pre", "post"] = "pre", dropout: float = 0.0) -> Transformer:
    torch.manual_seed(3)
    settings = TransformerSettings(
        encoder_layers=2, decoder_layers=2, width=16, feed_forward=24, heads=4, dropout=dropout, norm=norm
    )
    return Transformer(settings, VOCABULARY).eval()


def ids(lengths: np.ndarray, seed: int = 1) -> Tensor:
    return torch.randint(0, VOCABULARY, (int(lengths.sum()),), generator=torch.Generator().manual_seed(seed))


def forward(
    model: Transformer, source: Tensor, source_lengths: np.ndarray, target: Tensor, lengths: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Returns memory and decoder output."""
    source_layout = Layout.from_lengths(source_lengths)
    memory = model.encode(source, source_layout)
    return memory, model.decode(target, Layout.from_lengths(lengths), memory, source_layout)


def assert_close(actual: Tensor, expected: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0.0)


def test_the_transformer_base_preset_has_60_880_896_parameters() -> None:
    preset = load(Path(__file__).parents[2] / "configs" / "transformer-base-wmt16.yaml", [])
    assert isinstance(preset.model, TransformerSettings)
    with torch.device("meta"):
        base = make_model(preset.model, preset.data.vocabulary.size)
    assert sum(parameter.numel() for parameter in base.parameters()) == 60_880_896


def test_source_target_and_output_share_one_embedding() -> None:
    names = [name for name, tensor in small().state_dict().items() if VOCABULARY in tensor.shape]
    assert names == ["embedding.weight"]


@NORMS
@torch.no_grad()
def test_sentences_packed_together_give_what_each_gives_alone(norm: Literal["pre", "post"]) -> None:
    model, target_lengths = small(norm), np.array([2, 6, 1, 4])
    source, target = ids(MIXED), ids(target_lengths, seed=2)
    memory, output = forward(model, source, MIXED, target, target_lengths)
    alone = [
        forward(model, one_source, np.array([len(one_source)]), one_target, np.array([len(one_target)]))
        for one_source, one_target in zip(
            source.split(MIXED.tolist()), target.split(target_lengths.tolist()), strict=True
        )
    ]
    assert_close(memory, torch.cat([m for m, _ in alone]))
    assert_close(output, torch.cat([o for _, o in alone]))


@NORMS
@torch.no_grad()
def test_sentences_of_equal_length_take_the_dense_path_with_the_same_result(norm: Literal["pre", "post"]) -> None:
    model, equal = small(norm), np.array([4, 4])
    layout = Layout.from_lengths(equal)
    assert layout.padded_index is None
    assert layout.padding_mask is None
    source, target = ids(equal), ids(equal, seed=2)
    memory, output = forward(model, source, equal, target, equal)

    longer = np.array([4, 4, 6])  # a third, longer sentence forces the same two to be padded
    assert Layout.from_lengths(longer).padded_index is not None
    more = ids(np.array([6]), seed=3)
    memory_too, output_too = forward(model, torch.cat([source, more]), longer, torch.cat([target, more]), longer)
    assert_close(memory, memory_too[:8])
    assert_close(output, output_too[:8])


@NORMS
@pytest.mark.parametrize("at", [(1,), (2, 3), (1, 2, 3)])
def test_sentences_padded_in_parts_give_what_they_give_padded_together(
    norm: Literal["pre", "post"], at: tuple[int, ...]
) -> None:
    lengths, targets = np.array([7, 5, 5, 1]), np.array([6, 6, 2, 3])
    source, target = ids(lengths), ids(targets, seed=2)

    def results(cuts: tuple[int, ...]) -> dict[str, Tensor]:
        model, source_layout = small(norm), Layout.from_lengths(lengths, cuts)
        memory = model.encode(source, source_layout)
        output = model.decode(target, Layout.from_lengths(targets, cuts), memory, source_layout)
        (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return {"memory": memory.detach(), "output": output.detach(), **gradients}

    one, several = results(()), results(at)
    assert one.keys() == several.keys()
    for name, value in one.items():
        assert_close(several[name], value, atol=2e-5)


@NORMS
@torch.no_grad()
def test_the_future_does_not_influence_the_past(norm: Literal["pre", "post"]) -> None:
    model, lengths = small(norm), np.array([6, 4])
    source, target = ids(lengths), ids(lengths, seed=2)
    changed = target.clone()
    changed[3] = (changed[3] + 1) % VOCABULARY  # the fourth word of the first sentence
    _, before = forward(model, source, lengths, target, lengths)
    _, after = forward(model, source, lengths, changed, lengths)
    same = torch.tensor([True] * 3 + [False] * 3 + [True] * 4)
    assert torch.equal(before[same], after[same])
    assert ((before - after).abs().amax(1) > 1e-4).tolist() == (~same).tolist()


@torch.no_grad()
def test_every_source_word_influences_the_whole_target() -> None:
    model, lengths = small(), np.array([3, 5])
    source, target = ids(lengths), ids(lengths, seed=2)
    changed = source.clone()
    changed[7] = (changed[7] + 1) % VOCABULARY  # the last word of the second sentence
    _, before = forward(model, source, lengths, target, lengths)
    _, after = forward(model, changed, lengths, target, lengths)
    assert ((before - after).abs().amax(1) > 1e-5).tolist() == [False] * 3 + [True] * 5


@torch.no_grad()
def test_the_order_of_the_source_words_matters() -> None:
    model, layout = small(), Layout.from_lengths(np.array([3]))
    there, back = (model.encode(torch.tensor(words), layout) for words in ([5, 6, 7], [7, 6, 5]))
    assert not torch.allclose(there, back.flip(0), atol=1e-2)


@NORMS
def test_the_explicit_attention_equals_the_fused_one_with_its_gradients(
    norm: Literal["pre", "post"], monkeypatch: pytest.MonkeyPatch
) -> None:
    def results() -> dict[str, Tensor]:
        model = small(norm)
        memory, output = forward(model, ids(MIXED), MIXED, ids(MIXED, seed=2), MIXED)
        (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        return {"memory": memory.detach(), "output": output.detach(), **gradients}

    explicit = results()
    monkeypatch.setattr(transformer, "EXPLICIT_LIMIT", 0)
    fused = results()
    assert explicit.keys() == fused.keys()
    for name, value in explicit.items():
        assert_close(value, fused[name], atol=2e-5)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_both_attention_paths_agree_for_every_mask(masked: bool, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 4, 2, 5, 8)
    mask = Layout.from_lengths(np.array([5, 2, 3, 1])).padding_mask if masked else None
    explicit = attend(query, key, value, mask, causal, 0.0)
    monkeypatch.setattr(transformer, "EXPLICIT_LIMIT", 0)
    assert_close(attend(query, key, value, mask, causal, 0.0), explicit)


@NORMS
def test_gradients_flow_to_every_parameter(norm: Literal["pre", "post"]) -> None:
    model = small(norm, dropout=0.1).train()
    _, output = forward(model, ids(MIXED), MIXED, ids(MIXED, seed=2), MIXED)
    torch.nn.functional.cross_entropy(model.logits(output), ids(MIXED, seed=3)).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not bool(p.grad.any())]
    assert without == []
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_dropout_acts_in_training_and_not_in_evaluation() -> None:
    model, layout = small(dropout=0.5), Layout.from_lengths(MIXED)
    assert torch.equal(model.encode(ids(MIXED), layout), model.encode(ids(MIXED), layout))
    model.train()
    assert not torch.equal(model.encode(ids(MIXED), layout), model.encode(ids(MIXED), layout))


@pytest.mark.parametrize("lengths", [[5, 1, 3, 7], [4, 4, 4], [1], [1, 2]])
def test_padding_and_packing_is_a_round_trip(lengths: list[int]) -> None:
    layout = Layout.from_lengths(np.array(lengths))
    packed = torch.arange(1.0, 2 * sum(lengths) + 1).view(-1, 2)
    padded = layout.pad(packed)
    assert padded.shape == (len(lengths), max(lengths), 2)
    assert torch.equal(layout.pack(padded), packed)
    for row, (sentence, words) in enumerate(zip(padded, packed.split(lengths), strict=True)):
        assert torch.equal(sentence[: lengths[row]], words)
        assert not sentence[lengths[row] :].any()


def test_positions_and_padding_mask_follow_the_lengths() -> None:
    layout = Layout.from_lengths(np.array([2, 3, 1]))
    assert layout.positions.tolist() == [0, 1, 0, 1, 2, 0]
    assert layout.lengths.tolist() == [2, 3, 1]
    assert layout.padding_mask is not None
    assert layout.padding_mask.shape == (3, 1, 1, 3)
    assert (layout.padding_mask[:, 0, 0] == 0).tolist() == [
        [True, True, False],
        [True, True, True],
        [True, False, False],
    ]
    assert layout.padding_mask.min() == -torch.inf


@pytest.mark.parametrize("lengths", [[2, 3, 1], [2, 2]])
def test_the_gradients_of_pad_and_pack_are_right(lengths: list[int]) -> None:
    layout = Layout.from_lengths(np.array(lengths))
    packed = torch.randn(sum(lengths), 2, dtype=torch.double, requires_grad=True)
    padded = torch.randn(len(lengths), max(lengths), 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(layout.pad, (packed,))
    assert torch.autograd.gradcheck(layout.pack, (padded,))


@NORMS
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("source_lengths", [[5, 1, 3], [4, 4, 4]])
@torch.inference_mode()
def test_decoding_step_by_step_equals_teacher_forcing(
    norm: Literal["pre", "post"], beam: int, source_lengths: list[int]
) -> None:
    model, lengths, words = small(norm), np.array(source_lengths), 6
    layout = Layout.from_lengths(lengths)
    memory = model.encode(ids(lengths), layout)
    targets = torch.randint(0, VOCABULARY, (3, beam, words), generator=torch.Generator().manual_seed(4))
    caches = model.start(memory, layout, beam)
    steps = [model.step(targets[:, :, position], position, caches) for position in range(words)]
    stepwise = torch.stack(steps, dim=2)  # [rows, beam, words, vocabulary]
    for hypothesis in range(beam):
        forced = model.decode(targets[:, hypothesis].flatten(), Layout.from_lengths(np.full(3, words)), memory, layout)
        assert_close(stepwise[:, hypothesis].flatten(0, 1), model.logits(forced))


@torch.inference_mode()
def test_selected_hypotheses_and_sentences_decode_as_if_they_had_been_alone() -> None:
    model, lengths, beam = small(), np.array([5, 1, 3]), 2
    layout = Layout.from_lengths(lengths)
    source = ids(lengths)
    caches = model.start(model.encode(source, layout), layout, beam)
    first = torch.tensor([[1, 2], [3, 4], [5, 6]])
    model.step(first, 0, caches)
    for cache in caches:  # the middle sentence leaves; the first swaps its hypotheses, the last doubles its second
        cache.select(torch.tensor([1, 0, 5, 5]), torch.tensor([0, 2]))
    second = torch.tensor([[7, 8], [9, 10]])
    logits = model.step(second, 1, caches)

    for row, (sentence, starts) in enumerate([(0, [2, 1]), (2, [6, 6])]):
        alone = source.split(lengths.tolist())[sentence]
        alone_layout = Layout.from_lengths(lengths[[sentence]])
        memory = model.encode(alone, alone_layout)
        for hypothesis, start in enumerate(starts):
            words = torch.tensor([start, int(second[row, hypothesis])])
            forced = model.logits(model.decode(words, Layout.from_lengths(np.array([2])), memory, alone_layout))
            assert_close(logits[row, hypothesis], forced[-1])


@torch.no_grad()
def test_a_sentence_longer_than_any_before_extends_the_position_table() -> None:
    fresh, grown = small(), small()
    grown.encode(ids(MIXED), Layout.from_lengths(MIXED))
    long = np.array([300])
    assert torch.equal(
        grown.encode(ids(long), Layout.from_lengths(long)), fresh.encode(ids(long), Layout.from_lengths(long))
    )
    assert torch.equal(
        grown.encode(ids(MIXED), Layout.from_lengths(MIXED)), small().encode(ids(MIXED), Layout.from_lengths(MIXED))
    )


def test_training_works_after_a_decoding_that_grew_the_positions() -> None:
    model = small().train()
    long = np.array([300])
    with torch.inference_mode():
        model.encode(ids(long), Layout.from_lengths(long))
    model.encode(ids(MIXED), Layout.from_lengths(MIXED)).sum().backward()
    assert model.embedding.weight.grad is not None


def test_the_position_table_is_not_saved_with_the_model() -> None:
    model = small()
    model.encode(ids(MIXED), Layout.from_lengths(MIXED))
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_bf16_autocast_stays_near_fp32() -> None:
    model = small()
    _, exact = forward(model, ids(MIXED), MIXED, ids(MIXED, seed=2), MIXED)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, rough = forward(model, ids(MIXED), MIXED, ids(MIXED, seed=2), MIXED)
    assert_close(rough.float(), exact, atol=0.15)


def reference_varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    longest_query: int,
    longest_key: int,
    dropout_p: float,
    causal: bool,
    returns_mask: bool,
) -> tuple[Tensor]:
    """Computes what torch's variable-length kernel does, sentence by sentence: the kernel itself needs a GPU."""
    assert (dropout_p, returns_mask) == (0.0, False)
    assert query_offsets.dtype == key_offsets.dtype == torch.int32
    assert longest_query == int(query_offsets.diff().max())
    assert longest_key == int(key_offsets.diff().max())
    parts = []
    for sentence in range(len(query_offsets) - 1):
        queries = query[query_offsets[sentence] : query_offsets[sentence + 1]].transpose(0, 1)
        key_rows = slice(int(key_offsets[sentence]), int(key_offsets[sentence + 1]))
        keys, values = key[key_rows].transpose(0, 1), value[key_rows].transpose(0, 1)
        attended = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal)
        parts.append(attended.transpose(0, 1))
    return (torch.cat(parts),)


def test_varlen_attention_gives_what_padded_attention_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    model, target_lengths = small(), np.array([2, 6, 1, 4])
    source, target = ids(MIXED), ids(target_lengths, seed=2)

    def both() -> list[Tensor]:
        memory, output = forward(model, source, MIXED, target, target_lengths)
        loss = memory.square().sum() + output.square().sum()
        return [memory, output, *torch.autograd.grad(loss, list(model.parameters()))]

    expected = both()
    monkeypatch.setattr(transformer, "_flash_attention", reference_varlen_attn)
    monkeypatch.setattr(transformer, "supports_varlen", lambda query, heads: True)
    for actual, right in zip(both(), expected, strict=True):
        assert_close(actual, right, atol=1e-4)


def test_attention_weights_can_have_a_separate_dropout() -> None:
    settings = TransformerSettings(width=16, heads=4, dropout=0.3, attention_dropout=0.0)
    model = Transformer(settings, VOCABULARY)
    assert {m.dropout for m in model.modules() if isinstance(m, transformer.Attention)} == {0.0}
    assert {m.p for m in model.modules() if isinstance(m, transformer.Dropout)} == {0.3}
