from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lockstep.config import load
from lockstep.models.lstm import EncoderMemory, Lstm, LstmCell
from lockstep.models.make_model import make_model
from lockstep.models.model_settings import LstmSettings
from lockstep.models.packed import Layout, TimeMajorOrder
from lockstep.tasks.translation import PairBatch, TranslationLoss

VOCABULARY, WIDTH = 20, 6
MIXED, TARGETS = np.array([5, 1, 3, 7]), np.array([2, 6, 1, 4])


def small(dropout: float = 0.0, encoder_layers: int = 2, decoder_layers: int = 4) -> Lstm:
    torch.manual_seed(3)
    settings = LstmSettings(encoder_layers=encoder_layers, decoder_layers=decoder_layers, width=WIDTH, dropout=dropout)
    model = Lstm(settings, VOCABULARY).eval()
    with torch.no_grad():  # far from linear, so that what goes wrong shows
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model


def ids(lengths: np.ndarray, seed: int = 1) -> Tensor:
    return torch.randint(0, VOCABULARY, (int(lengths.sum()),), generator=torch.Generator().manual_seed(seed))


def forward(model: Lstm, source: Tensor, lengths: np.ndarray, target: Tensor, targets: np.ndarray) -> Tensor:
    output: Tensor = model(source, Layout.from_lengths(lengths), target, Layout.from_lengths(targets))
    return output


def assert_close(actual: Tensor, expected: Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=atol, rtol=0.0)


def test_the_field_report_s_model_has_its_19_parameter_tensors() -> None:
    """Three of 97.6 MB, and a kernel and a bias for each of four encoder and four decoder cells."""
    preset = load(Path(__file__).parents[2] / "configs" / "lstm-field-report-5.yaml", [])
    assert isinstance(preset.model, LstmSettings)
    with torch.device("meta"):
        model = make_model(preset.model, preset.data.vocabulary.size)
    parameters = dict(model.named_parameters())
    large = {name: p.numel() * 4 / 2**20 for name, p in parameters.items() if p.numel() * 4 > 90 * 2**20}
    assert large == {
        "source_embedding.weight": pytest.approx(97.6, abs=0.1),
        "target_embedding.weight": pytest.approx(97.6, abs=0.1),
        "projection.weight": pytest.approx(97.6, abs=0.1),
    }
    units = [f"encoder.{layer}.units.{direction}" for layer in range(2) for direction in range(2)]
    units += [f"decoder.{layer}.units.0" for layer in range(4)]
    assert set(parameters) - set(large) == {f"{unit}.{part}" for unit in units for part in ("kernel", "bias")}
    assert (len(parameters), sum(p.numel() for p in parameters.values())) == (19, 98_836_480)
    assert set(model.state_dict()) == set(parameters)
    assert all(parameters[f"{unit}.bias"].shape == (4 * 512,) for unit in units)


def test_a_cell_computes_what_torch_s_lstm_computes() -> None:
    """With torch's two kernels side by side and its two biases added."""
    reference, cell = nn.LSTM(4, WIDTH), LstmCell(4, WIDTH)
    for_input, for_state, bias, other_bias = reference.parameters()
    with torch.no_grad():
        cell.kernel.copy_(torch.cat([for_input, for_state], dim=1))
        cell.bias.copy_(bias + other_bias)
    x, zeros = torch.randn(5, 1, 4), torch.zeros(1, 1, WIDTH)
    ours, _, _ = torch.lstm(x, (zeros, zeros), cell.split_weights(), True, 1, 0.0, False, False, False)
    assert_close(ours, reference(x)[0])


def test_torch_lstm_gets_contiguous_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU torch copies them into cuDNN's layout, and refuses to where they are columns of a larger matrix."""
    given, lstm = list[Tensor](), torch.lstm

    def record(x: Tensor, batch_sizes: Tensor, state: object, weights: list[Tensor], *rest: object) -> object:
        given.extend(weights)
        return lstm(x, batch_sizes, state, weights, *rest)  # type: ignore[call-overload]

    monkeypatch.setattr(torch, "lstm", record)
    lengths = np.array([2, 3])
    forward(small(), ids(lengths), lengths, ids(lengths), lengths)
    assert len(given) == 4 * (2 * 2 + 4)
    assert all(weight.is_contiguous() for weight in given)


def reference_forward(model: Lstm, source: list[int], target: list[int]) -> Tensor:
    """Computes one sentence, word by word and without torch's sequence kernels."""

    def run(unit: LstmCell, inputs: list[Tensor], output: Tensor, cell: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        outputs = []
        for x in inputs:
            i, f, g, o = (unit.kernel @ torch.cat([x, output]) + unit.bias).chunk(4)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            output = o.sigmoid() * cell.tanh()
            outputs.append(output)
        return outputs, output, cell

    zeros, ends = torch.zeros(WIDTH), []
    words = [model.source_embedding.weight[i] for i in source]
    there: list[Tensor] = []
    back: list[Tensor] = []
    for layer in model.encoder:
        one, other = layer.units  # type: ignore[misc]
        there, *end = run(one, words, zeros, zeros)
        back, *back_end = run(other, words[::-1], zeros, zeros)
        back.reverse()
        ends += [end, back_end]
        words = [torch.cat(pair) for pair in zip(there, back, strict=True)]
    memory = torch.stack([a + b for a, b in zip(there, back, strict=True)])
    words = [model.target_embedding.weight[i] for i in target]
    contexts: list[Tensor] = []
    for number, layer in enumerate(model.decoder):
        begin = ends[number] if number < len(ends) else [zeros, zeros]
        outputs, _, _ = run(layer.units[0], words, *begin)  # type: ignore[arg-type, index]
        if not contexts:
            contexts = [(memory @ output).softmax(0) @ memory for output in outputs]
        words = [torch.cat(pair) for pair in zip(outputs, contexts, strict=True)]
    return torch.stack([word[:WIDTH] for word in words])


@pytest.mark.parametrize(("encoder_layers", "decoder_layers"), [(2, 4), (1, 3), (2, 2)])
@torch.no_grad()
def test_sentences_packed_together_give_what_each_gives_alone(encoder_layers: int, decoder_layers: int) -> None:
    model = small(encoder_layers=encoder_layers, decoder_layers=decoder_layers)
    source, target = ids(MIXED), ids(TARGETS, seed=2)
    together = forward(model, source, MIXED, target, TARGETS).split(TARGETS.tolist())
    pairs = zip(source.split(MIXED.tolist()), target.split(TARGETS.tolist()), strict=True)
    for output, (one_source, one_target) in zip(together, pairs, strict=True):
        assert_close(output, reference_forward(model, one_source.tolist(), one_target.tolist()))


def test_the_same_words_have_the_same_loss_and_gradient_in_any_batch() -> None:
    model = TranslationLoss(small(), 0.1)
    source, target, right = ids(MIXED), ids(TARGETS, seed=2), ids(TARGETS, seed=3)

    def batch(rows: list[int]) -> PairBatch:
        sources, targets, rights = (
            torch.cat([words.split(lengths.tolist())[row] for row in rows])
            for words, lengths in ((source, MIXED), (target, TARGETS), (right, TARGETS))
        )
        layouts = Layout.from_lengths(MIXED[rows]), Layout.from_lengths(TARGETS[rows])
        return PairBatch(sources, layouts[0], targets, rights, layouts[1], len(sources), len(targets))

    def loss_and_gradients(*batches: list[int]) -> list[Tensor]:
        loss = torch.stack([model(batch(rows)) for rows in batches]).sum()
        return [loss, *torch.autograd.grad(loss, list(model.parameters()))]

    together = loss_and_gradients([0, 1, 2, 3])
    for others in ([[3, 1, 0, 2]], [[0], [1], [2], [3]], [[2, 0], [1, 3]]):
        for actual, expected in zip(loss_and_gradients(*others), together, strict=True):
            assert_close(actual, expected, atol=1e-4)


@pytest.mark.parametrize("lengths", [[5, 1, 3, 7], [4, 4, 4], [1], [1, 2]])
def test_time_major_order_is_a_round_trip(lengths: list[int]) -> None:
    layout = Layout.from_lengths(np.array(lengths))
    order = TimeMajorOrder.from_layout(layout, torch.device("cpu"))
    packed = torch.arange(1.0, 2 * sum(lengths) + 1).view(-1, 2)
    time_major = packed[order.packed_index]
    assert order.batch_sizes.tolist() == [
        sum(length > position for length in lengths) for position in range(max(lengths))
    ]
    assert layout.positions[order.packed_index].tolist() == sorted(layout.positions.tolist())
    assert torch.equal(order.pack(time_major), packed)
    assert torch.equal(order.pad(time_major), layout.pad(packed))
    assert torch.equal(order.unpad(layout.pad(packed)), time_major)
    states = torch.randn(3, len(lengths), 2)
    assert torch.equal(order.unsort_rows(order.sort_rows(states)), states)


def test_the_gradients_of_reordering_are_right() -> None:
    order = TimeMajorOrder.from_layout(Layout.from_lengths(np.array([2, 3, 1])), torch.device("cpu"))
    words = torch.randn(6, 2, dtype=torch.double, requires_grad=True)
    padded = torch.randn(3, 3, 2, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(order.pack, (words,))
    assert torch.autograd.gradcheck(order.pad, (words,))
    assert torch.autograd.gradcheck(order.unpad, (padded,))


@torch.no_grad()
def test_the_future_does_not_influence_the_past() -> None:
    model, lengths = small(), np.array([6, 4])
    source, target = ids(lengths), ids(lengths, seed=2)
    changed = target.clone()
    changed[3] = (changed[3] + 1) % VOCABULARY  # the fourth word of the first sentence
    before, after = (forward(model, source, lengths, words, lengths) for words in (target, changed))
    same = torch.tensor([True] * 3 + [False] * 3 + [True] * 4)
    assert torch.equal(before[same], after[same])
    assert ((before - after).abs().amax(1) > 1e-4).tolist() == (~same).tolist()


def test_gradients_flow_to_every_parameter() -> None:
    model = small(dropout=0.1).train()
    output = forward(model, ids(MIXED), MIXED, ids(TARGETS, seed=2), TARGETS)
    nn.functional.cross_entropy(model.logits(output), ids(TARGETS, seed=3)).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not bool(p.grad.any())] == []
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


def test_the_random_state_determines_the_dropout_masks_between_layers() -> None:
    model = small(dropout=0.5)

    def outputs(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return forward(model, ids(MIXED), MIXED, ids(TARGETS, seed=2), TARGETS)

    assert torch.equal(outputs(1), outputs(2))
    model.train()
    assert torch.equal(outputs(1), outputs(1))
    assert not torch.equal(outputs(1), outputs(2))


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("source_lengths", [[5, 1, 3], [4, 4, 4]])
@torch.inference_mode()
def test_decoding_step_by_step_equals_teacher_forcing(beam: int, source_lengths: list[int]) -> None:
    model, lengths, words = small(), np.array(source_lengths), 6
    layout = Layout.from_lengths(lengths)
    memory = model.encode(ids(lengths), layout)
    targets = torch.randint(0, VOCABULARY, (3, beam, words), generator=torch.Generator().manual_seed(4))
    caches = model.start(memory, layout, beam)
    stepwise = torch.stack([model.step(targets[:, :, position], position, caches) for position in range(words)], dim=2)
    for hypothesis in range(beam):
        forced = model.decode(targets[:, hypothesis].flatten(), Layout.from_lengths(np.full(3, words)), memory, layout)
        assert_close(stepwise[:, hypothesis].flatten(0, 1), model.logits(forced))


@torch.inference_mode()
def test_selected_hypotheses_and_sentences_decode_as_if_they_had_been_alone() -> None:
    model, lengths, beam = small(), np.array([5, 1, 3]), 2
    layout, source = Layout.from_lengths(lengths), ids(lengths)
    caches = model.start(model.encode(source, layout), layout, beam)
    model.step(torch.tensor([[1, 2], [3, 4], [5, 6]]), 0, caches)
    for cache in caches:  # the middle sentence leaves; the first swaps its hypotheses, the last doubles its second
        cache.select(torch.tensor([1, 0, 5, 5]), torch.tensor([0, 2]))
    second = torch.tensor([[7, 8], [9, 10]])
    logits = model.step(second, 1, caches)
    for row, (sentence, starts) in enumerate([(0, [2, 1]), (2, [6, 6])]):
        alone = source.split(lengths.tolist())[sentence].tolist()
        for hypothesis, start in enumerate(starts):
            forced = reference_forward(model, alone, [start, int(second[row, hypothesis])])
            assert_close(logits[row, hypothesis], model.logits(forced)[-1], atol=1e-4)


@pytest.mark.parametrize("targets", [TARGETS, np.full(4, 3)])
def test_bf16_autocast_stays_near_fp32(targets: np.ndarray) -> None:
    model = small()
    exact = forward(model, ids(MIXED), MIXED, ids(targets, seed=2), targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = forward(model, ids(MIXED), MIXED, ids(targets, seed=2), targets)
    assert_close(rough.float(), exact, atol=0.15)


def test_the_memory_keeps_the_order_of_the_batch() -> None:
    model = small()
    memory = model.encode(ids(MIXED), Layout.from_lengths(MIXED))
    assert isinstance(memory, EncoderMemory)
    for row, words in enumerate(ids(MIXED).split(MIXED.tolist())):
        alone = model.encode(words, Layout.from_lengths(MIXED[[row]]))
        assert_close(memory.words[row, : len(words)], alone.words[0])
        for together, single in zip(memory.state, alone.state, strict=True):
            assert_close(together[:, row], single[:, 0])
