"""Counts the FLOPs of real training steps: the multiplications and additions of their matrix products.

The products are counted while they run, with torch's formulas; those of compiled kernels are in `flop_tally`. The counter
does not depend on the model and does not change its results.
"""

from collections.abc import Callable, Sequence
from typing import Self

from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from lockstep import flop_tally

FlopFormula = Callable[..., int]
"""Takes the arguments of an operator and its result as `out_val`; returns its FLOPs."""


class FlopCount(TorchDispatchMode):
    """A context around forward and backward; every product inside adds to `total`. When one of them cannot be counted,
    `total` is 0 from then on: a partial count would mislead."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self._formulas = _list_formulas()

    def __enter__(self) -> Self:
        self._tally = flop_tally.read()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        if self._formulas:
            self.total += flop_tally.read() - self._tally

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Prevents torch from importing its compiler, which takes two seconds, only to exclude `__torch_dispatch__`."""
        return False

    def __torch_dispatch__(
        self,
        func: OpOverload[..., object],
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        formula = self._formulas.get(str(getattr(func, "_overloadpacket", func)))
        if formula is not None:
            try:
                self.total += int(formula(*args, **kwargs, out_val=result))
            except Exception:  # counting must never stop a training
                self.total, self._formulas = 0, {}
        return result


def _list_formulas() -> dict[str, FlopFormula]:
    """Returns torch's formulas by the name of the operator, and those that torch lacks."""
    from torch.utils.flop_counter import flop_registry

    formulas: dict[str, FlopFormula] = {str(packet): formula for packet, formula in flop_registry.items()}
    flash = "aten._scaled_dot_product_flash_attention"
    return formulas | {
        f"{flash}_for_cpu": formulas[flash],
        f"{flash}_for_cpu_backward": formulas[f"{flash}_backward"],
        "aten._cudnn_rnn": _count_rnn,
        "aten._cudnn_rnn_backward": lambda *args, **_: 2 * _count_rnn(*args),
        "aten.mkldnn_rnn_layer": lambda words, *weights, **_: _count_rnn(words, weights[:4]),
        "aten.mkldnn_rnn_layer_backward": lambda words, *weights, **_: 2 * _count_rnn(words, weights[:4]),
        "torch_attn._varlen_attn": _count_varlen_attention,
        "torch_attn._varlen_attn_backward": _count_varlen_attention_backward,
    }


def _count_rnn(words: Tensor, weights: Sequence[Tensor], *_: object, **__: object) -> int:
    """Every weight matrix is multiplied once with every word: with its vector, or with the state before it."""
    return 2 * words.numel() // words.shape[-1] * sum(weight.numel() for weight in weights if weight.dim() > 1)


def _count_varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, query_offsets: Tensor, key_offsets: Tensor, *_: object, **__: object
) -> int:
    """Two products, of queries with keys and of scores with values. Query and key are `[words, heads, head_size]`;
    offsets, `[sentences + 1]`, are the cumulative lengths of the sentences."""
    pairs = int((query_offsets.diff().long() * key_offsets.diff().long()).sum())
    return 4 * pairs * query.shape[1] * query.shape[2]


def _count_varlen_attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    log_sum_exp: Tensor,
    query_offsets: Tensor,
    key_offsets: Tensor,
    *_: object,
    **__: object,
) -> int:
    """Five products where the forward pass has two: the scores again, and one for each operand of both products."""
    return _count_varlen_attention(query, key, value, query_offsets, key_offsets) * 5 // 2
