"""How much arithmetic a model does: the multiplications and additions of its matrix products, as torch counts them.

Forward and backward passes of real steps are counted while they run. Nothing has to know the model, and the results
keep their bits.
"""

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class FlopCount(TorchDispatchMode):
    """Used as a context around forward and backward; `total` grows by every product inside. It stays 0 when a product
    cannot be counted: half a count says nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self._formulas = _formulas()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler, which takes two seconds, to mark the method below as not to be compiled."""
        return False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        formula = self._formulas.get(str(getattr(function, "_overloadpacket", function)))
        if formula is not None:
            try:
                self.total += int(formula(*args, **kwargs, out_val=result))
            except Exception:  # whatever it is, training goes on
                self.total, self._formulas = 0, {}
        return result


def _formulas() -> dict[str, Callable[..., Any]]:
    """torch's own by the name of the operation, and those it lacks."""
    from torch.utils.flop_counter import flop_registry

    known = {str(packet): formula for packet, formula in flop_registry.items()}
    fused = "aten._scaled_dot_product_flash_attention"
    return known | {
        f"{fused}_for_cpu": known[fused],
        f"{fused}_for_cpu_backward": known[f"{fused}_backward"],
        "aten._cudnn_rnn": _recurrent,
        "aten._cudnn_rnn_backward": lambda *args, **_: 2 * _recurrent(*args),
        "aten.mkldnn_rnn_layer": lambda words, *weights, **_: _recurrent(words, weights[:4]),
        "aten.mkldnn_rnn_layer_backward": lambda words, *weights, **_: 2 * _recurrent(words, weights[:4]),
        "torch_attn._varlen_attn": _packed_attention,
        "torch_attn._varlen_attn_backward": _packed_attention_backward,
    }


def _recurrent(words: Any, weights: Any, *_: Any, **__: Any) -> int:
    """Every matrix of a layer is multiplied once with every word (its vector, or the state before it)."""
    return 2 * words.numel() // words.shape[-1] * sum(weight.numel() for weight in weights if weight.dim() > 1)


def _packed_attention(query: Any, key: Any, value: Any, query_bounds: Any, key_bounds: Any, *_: Any, **__: Any) -> int:
    """Scores and mixture: query and key are `[words, heads, size]`, bounds say where sentences begin and end."""
    pairs = int((query_bounds.diff().long() * key_bounds.diff().long()).sum())
    return 4 * pairs * query.shape[1] * query.shape[2]


def _packed_attention_backward(*args: Any, **__: Any) -> int:
    """The scores again, and a product for each side of both products."""
    query, key, value, _, _, query_bounds, key_bounds = args[1:8]
    return _packed_attention(query, key, value, query_bounds, key_bounds) * 5 // 2
