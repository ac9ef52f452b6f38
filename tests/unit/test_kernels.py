"""The compiled CPU kernels compute what torch's operators compute, with dropout as well."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.config import RunConfig, build
from lockstep.errors import LockstepError
from lockstep.models import dropout, fused, kernels
from lockstep.models.model_settings import TransformerSettings
from lockstep.models.packed import Layout, choose_cuts
from lockstep.models.transformer import Transformer
from lockstep.run.directory import RunDirectory
from lockstep.tasks.output_loss import cross_entropy
from lockstep.team import Team
from lockstep.train.choices import Choices, make_choices
from lockstep.watch.flops import FlopCount

pytestmark = [
    pytest.mark.skipif(not kernels.are_available(), reason="the kernels are not compiled here"),
    pytest.mark.usefixtures("native_library"),
]
VOCABULARY, MASK = 61, (1 << 64) - 1
SOURCE, TARGET = np.array([21, 17, 9, 3, 1]), np.array([18, 19, 4, 5, 2])


def draw_bytes(seed: int, counter: int, count: int) -> list[int]:
    """The random bytes of kernels.c, written once more in Python."""
    drawn: list[int] = []
    for i in range(-(-count // 8)):
        z = (seed + (counter + i + 1) * 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        drawn += (z ^ (z >> 31)).to_bytes(8, "little")
    return drawn[:count]


def draw_like_kernels(x: Tensor, dropped: int) -> Tensor:
    """Replaces the masks of `models.dropout`: those of the kernels, for rows of words."""
    seed, (rows, width) = fused.draw_seed(dropped), x.shape
    masks = [draw_bytes(seed, row * -(-width // 8), width) for row in range(rows)]
    return (torch.tensor(masks) >= dropped).to(torch.uint8)


def make_model(norm: str, p: float, width: int = 24, heads: int = 3) -> tuple[Transformer, tuple[Any, ...], Tensor]:
    settings = TransformerSettings(
        encoder_layers=2,
        decoder_layers=2,
        width=width,
        feed_forward=40,
        heads=heads,
        dropout=p,
        attention_dropout=0.0,
        norm="pre" if norm == "pre" else "post",
    )
    torch.manual_seed(1)
    model = Transformer(settings, VOCABULARY)
    for parameter in model.parameters():  # norms and biases begin with trivial values
        nn.init.normal_(parameter, std=0.3) if parameter.ndim == 1 else None
    cuts = choose_cuts(SOURCE, TARGET)
    layouts = Layout.from_lengths(SOURCE, cuts), Layout.from_lengths(TARGET, cuts)
    source, target, labels = (torch.randint(0, VOCABULARY, (int(n.sum()),)) for n in (SOURCE, TARGET, TARGET))
    return model, (source, layouts[0], target, layouts[1]), labels


def compute(name: str, model: Transformer, batch: tuple[Any, ...], labels: Tensor, bf16: bool) -> list[Tensor]:
    """Returns loss and gradients."""
    model.zero_grad()
    torch.manual_seed(7)
    with kernels.selected(name), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = cross_entropy(model(*batch), model.output_weight, labels, 0.1)
    (loss / len(labels)).backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(("width", "heads"), [(24, 3), (64, 2), (34, 17)])
def test_loss_and_gradients_of_a_model_are_those_of_torch(norm: str, width: int, heads: int) -> None:
    model, batch, labels = make_model(norm, 0.0, width, heads)
    expected, actual = (compute(name, model, batch, labels, False) for name in ("torch", "native"))
    assert len(actual) == len(expected) == 1 + len(list(model.parameters()))
    for right, own in zip(expected, actual, strict=True):
        assert own.dtype == torch.float32
        torch.testing.assert_close(own, right, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_in_bf16_they_are_those_of_torch_within_its_rounding(norm: str) -> None:
    model, batch, labels = make_model(norm, 0.0)
    exact = compute("torch", model, batch, labels, False)
    expected, actual = (compute(name, model, batch, labels, True) for name in ("torch", "native"))
    for right, own, known in zip(expected, actual, exact, strict=True):
        error, usual = (own - known).norm(), (right - known).norm()
        assert error <= 2.0 * usual + 0.004 * known.norm()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_with_the_same_masks_dropout_gives_the_same(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropout, "_draw_mask", draw_like_kernels)
    monkeypatch.setattr(fused, "ROW_UNIT", 1)
    model, batch, labels = make_model(norm, 0.3)
    expected, actual = (compute(name, model, batch, labels, False) for name in ("torch", "native"))
    for right, own in zip(expected, actual, strict=True):
        torch.testing.assert_close(own, right, rtol=1e-4, atol=2e-5)
    without = compute("native", make_model(norm, 0.0)[0], batch, labels, False)
    assert abs(without[0] - actual[0]) > 0.01, "dropout did nothing"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.25])
def test_attention_is_that_of_every_sentence_and_head_alone(causal: bool, p: float) -> None:
    heads, size = 3, 8
    queries, keys = Layout.from_lengths(TARGET), Layout.from_lengths(TARGET if causal else SOURCE)
    torch.manual_seed(3)
    query, key, value = (torch.randn(layout.words, heads * size) for layout in (queries, keys, keys))
    out_grad = torch.randn_like(query)
    pairing = fused.Pairing.make(queries, keys)
    attention, out = fused._Attention.compute(fused.Heads(pairing, heads, causal, p), query, key, value)
    grads = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    attention.backward((query, key, value), grads, out_grad)
    operands = [tensor.requires_grad_() for tensor in (query, key, value)]
    expected = torch.cat(
        [
            attend_one(operands, pairing, attention, sentence, heads, causal)
            for sentence in range(len(TARGET))
        ]
    )  # fmt: skip
    torch.testing.assert_close(out, expected)
    for own, right in zip(grads, torch.autograd.grad(expected, operands, out_grad), strict=True):
        torch.testing.assert_close(own, right, rtol=1e-4, atol=1e-5)


def attend_one(
    operands: list[Tensor], pairing: fused.Pairing, attention: fused._Attention, sentence: int, heads: int, causal: bool
) -> Tensor:
    """Attends within one sentence with torch's operators, and with the dropout masks of the kernel."""
    begin, end = pairing.queries[sentence : sentence + 2].tolist()
    first, last = pairing.keys[sentence : sentence + 2].tolist()
    results, columns, dropped = [], -(-(last - first) // 16) * 16, attention.dropped
    for head in range(heads):
        part = slice(8 * head, 8 * head + 8)
        query, key, value = operands[0][begin:end, part], operands[1][first:last, part], operands[2][first:last, part]
        scores = query @ key.T / math.sqrt(8)
        if causal:
            scores = scores + torch.full_like(scores, -math.inf).triu(1)
        weights = scores.softmax(-1)
        place = int(pairing.places[sentence]) * heads + head * (end - begin) * columns
        if dropped:
            drawn = [draw_bytes(attention.seed, (place + i * columns) // 8, columns) for i in range(end - begin)]
            kept = torch.tensor(drawn)[:, : last - first] >= dropped
            weights = weights * kept * (256 / (256 - dropped))
        results.append(weights @ value)
    return torch.cat(results, 1)


def test_the_random_bytes_drop_as_often_as_asked() -> None:
    table, ids = torch.ones(1, 64), torch.zeros(4000, dtype=torch.int64)
    with kernels.selected("native"):
        x = fused.embed(table, ids, ids, torch.zeros(1, 64), 1.0, 0.1)
    dropped = dropout.count_dropped(0.1) / 256
    assert (x == 0).float().mean().item() == pytest.approx(dropped, abs=0.003)
    assert x.unique().tolist() == pytest.approx([0.0, 1 / (1 - dropped)])
    assert (x == 0).float().mean(0).std() < 0.01, "every column is dropped alike"


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    torch.manual_seed(2)
    x, y, norm = torch.randn(333, 48), torch.randn(333, 48), nn.LayerNorm(48)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        torch.manual_seed(5)
        total, h = fused.add_norm(x.clone().requires_grad_(), y, norm, 0.1, torch.float32, True)
        norm.zero_grad()
        (total.sum() + (h * h).sum()).backward()
        assert norm.weight.grad is not None
        results.append((total, h, norm.weight.grad.clone()))
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_value_that_is_not_finite_reaches_the_loss(bad: float) -> None:
    model, batch, labels = make_model("pre", 0.0)
    with torch.no_grad():
        dict(model.named_parameters())["decoder.0.feed_forward.sub_layer.outer.bias"][3] = bad
    assert not math.isfinite(compute("native", model, batch, labels, False)[0].item())
    assert not math.isfinite(compute("native", model, batch, labels, True)[0].item())


@pytest.mark.parametrize("bf16", [False, True])
def test_loss_and_gradients_of_the_output_layer_are_those_of_torch(bf16: bool) -> None:
    torch.manual_seed(4)
    dtype = torch.bfloat16 if bf16 else torch.float32
    x, weight, labels = torch.randn(70, 16), torch.randn(VOCABULARY, 16), torch.randint(0, VOCABULARY, (64,))
    for tensor in (x, weight):
        tensor.copy_(tensor.bfloat16()).requires_grad_()
    expected = F.cross_entropy(
        (x[:64].to(dtype) @ weight.to(dtype).T).float(), labels, reduction="sum", label_smoothing=0.1
    )
    right = torch.autograd.grad(expected, (x, weight))
    with kernels.selected("native"), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        loss = cross_entropy(x, weight, labels, 0.1)
    actual = torch.autograd.grad(loss, (x, weight))
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-4)
    tolerance = 0.03 if bf16 else 1e-5
    for own, grad in zip(actual, right, strict=True):
        assert (own - grad).norm() <= tolerance * grad.norm()
    assert (actual[0][64:] == 0).all(), "rows without a word have no gradient"


def test_without_gradients_and_in_evaluation_torch_computes() -> None:
    model, batch, _ = make_model("pre", 0.1)
    with kernels.selected("native"):
        assert kernels.are_used(model.embedding.weight)
        with torch.no_grad():
            assert not kernels.are_used(model.embedding.weight)
        assert len(model.eval()(*batch)) == TARGET.sum(), "no rows are added"


def test_flops_of_attention_are_counted() -> None:
    model, batch, labels = make_model("pre", 0.0)
    counts = []
    for name in ("torch", "native"):
        counter = FlopCount()
        with kernels.selected(name), counter:
            model(*batch).sum().backward()
        counts.append(counter.total)
    pairs = SOURCE @ SOURCE + TARGET @ TARGET + TARGET @ SOURCE
    assert counts[1] > 12 * 24 * 2 * pairs, "attention is part of it"
    assert counts[1] == pytest.approx(counts[0], rel=0.5)  # torch computes padded sentences, native padded rows


def make_config(**train: object) -> RunConfig:
    return build({"data": {"grammar": {"train": 10, "validation": 2}}, "train": train}, "test")


def test_a_run_keeps_its_kernels_and_is_refused_where_they_are_missing(tmp_path: Path) -> None:
    run, team, config = RunDirectory(tmp_path), Team(0, 1, torch.device("cpu")), make_config()
    first = make_choices(run, config, team, has_kernels=True, precision="fp32", may_keep=False)
    assert first.kernels == "native"
    first.write(run)
    assert make_choices(run, config, team, has_kernels=True, precision="fp32", may_keep=True).kernels == "native"
    with pytest.raises(LockstepError, match="was trained with native kernels") as error:
        make_choices(run, config, team, has_kernels=False, precision="fp32", may_keep=True)
    assert "train.kernels=torch" in error.value.remedy
    without = make_choices(run, make_config(kernels="torch"), team, has_kernels=False, precision="fp32", may_keep=True)
    assert without.kernels == "torch"
    with pytest.raises(LockstepError, match="not all workers have the compiled kernels"):
        make_choices(run, make_config(kernels="native"), team, has_kernels=False, precision="fp32", may_keep=False)


def test_a_run_of_an_earlier_version_keeps_the_operators_of_torch(tmp_path: Path) -> None:
    run, team = RunDirectory(tmp_path), Team(0, 1, torch.device("cpu"))
    make_choices(run, make_config(), team, has_kernels=False, precision="fp32", may_keep=False).write(run)
    facts = run.choices.read_text().replace('"kernels": "torch",', "")
    assert "kernels" not in facts
    run.choices.write_text(facts)
    assert make_choices(run, make_config(), team, has_kernels=True, precision="fp32", may_keep=True).kernels == "torch"
    assert Choices("fp32", 1, {"words": 1, "sentences": None, "images": None, "per": "global"}).kernels == "torch"
