"""The branches of attention that a GPU takes: on the device meta, and numerically on CPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from device_stand_ins import META
from lockstep.models import packed, transformer
from lockstep.models.model_settings import TransformerSettings
from lockstep.models.packed import Layout, align_mask, choose_cuts
from lockstep.models.transformer import Attention, attend, supports_varlen
from lockstep.tasks.translation import PairBatch

LENGTHS = np.array([40, 33, 20, 18, 11, 9, 5, 3])


def make_batch(times: int) -> PairBatch:
    lengths = np.repeat(LENGTHS, times)
    layout = Layout.from_lengths(lengths, choose_cuts(lengths, lengths))
    ids = torch.zeros(int(lengths.sum()), dtype=torch.int64)
    return PairBatch(ids, layout, ids, ids, layout, len(ids), len(ids))


def test_attention_is_in_one_piece_on_a_device() -> None:
    """Parts were tuned for CPUs: each of up to six starts kernels of its own."""
    batch = make_batch(20)
    assert len(batch.source_layout.parts) > 2
    moved = batch.to(META)
    assert moved.source_layout.parts == moved.target_layout.parts == ()
    assert moved.source.is_meta
    assert batch.to(torch.device("cpu")).source_layout.parts, "CPUs keep them"


def test_masks_are_made_once_for_all_layers_in_the_format_of_the_products() -> None:
    layout = make_batch(1).to(META).source_layout
    query = torch.zeros(1, device=META, dtype=torch.bfloat16)
    mask = layout.get_mask(query)
    assert mask is not None
    assert layout.get_mask(query) is mask
    assert (mask.dtype, mask.shape) == (torch.bfloat16, (8, 1, 1, 40))
    assert all(stride % 16 == 0 for stride in mask.stride()[:-1]), "torch would copy it for every layer"


def test_aligned_masks_give_the_same_attention() -> None:
    torch.manual_seed(1)
    mask = Layout.from_lengths(LENGTHS).padding_mask
    assert mask is not None
    query, key, value = (torch.randn(8, 2, 40, 8) for _ in range(3))
    expected = attend(query, key, value, mask, False, 0.0)  # explicit, with the softmax that is tuned for CPUs
    fused = transformer._attend_fused(query, key, value, align_mask(mask, torch.float32), False, 0.0)
    torch.testing.assert_close(fused, expected)


@pytest.mark.parametrize(
    ("capability", "dtype", "width", "expected"),
    [
        ((8, 0), torch.bfloat16, 64, True),
        ((9, 0), torch.float16, 64, True),
        ((7, 0), torch.float16, 64, False),
        ((7, 5), torch.float16, 64, False),
        ((8, 0), torch.float32, 64, False),
        ((8, 0), torch.bfloat16, 24, False),  # heads of 6
        ((8, 0), torch.bfloat16, 1024, False),  # heads of 256
    ],
)
def test_which_gpus_attend_to_packed_words(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: torch.dtype, width: int, expected: bool
) -> None:
    class OnGpu(Tensor):
        is_cuda = True

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert supports_varlen(torch.zeros(3, width, dtype=dtype).as_subclass(OnGpu), heads=4) is expected


def test_training_with_dropout_attends_to_packed_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default dropout kept every training away from the kernel."""
    monkeypatch.setattr(transformer, "supports_varlen", lambda query, heads: True)
    monkeypatch.setattr(packed, "_scatter", None)  # nothing is padded
    layout = replace(make_batch(1).to(META).source_layout)
    attention = Attention(TransformerSettings(width=32, heads=4, dropout=0.3)).to(META, torch.bfloat16)
    x = torch.zeros(layout.words, 32, device=META, dtype=torch.bfloat16, requires_grad=True)
    seen: list[float] = []
    kernel = transformer._flash_attention

    def note(*args: object) -> object:
        seen.append(float(args[7]))  # type: ignore[arg-type]
        return kernel(*args)

    monkeypatch.setattr(transformer, "_flash_attention", note)
    attention(x, layout, x, layout, causal=True).sum().backward()
    assert seen == [0.3]
    assert x.grad is not None
    assert x.grad.shape == x.shape
    attention.eval()(x, layout, x, layout)
    assert seen == [0.3, 0.0]
