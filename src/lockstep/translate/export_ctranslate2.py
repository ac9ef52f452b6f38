"""Writes a trained Transformer as a CTranslate2 model. No torch is needed: the weights are NumPy arrays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lockstep.data.corpus.vocabulary import Vocabulary
from lockstep.models.model_settings import TransformerSettings
from lockstep.translate.average import Weights
from lockstep.translate.ctranslate2_engine import import_ctranslate2
from lockstep.translate.search_engine import find_limits
from lockstep.translate.search_settings import SearchSettings

LEAST_POSITIONS = 512
MOST_POSITIONS = 8192
"""Rows of the position table, however long sentences may become without search.max_words."""
QUANTIZATIONS = {
    "none": None,
    "int8": "int8",
    "int8_bfloat16": "int8_bfloat16",
    "float16": "float16",
    "bfloat16": "bfloat16",
}
"""The choices of `--quantize`, and CTranslate2's names for them."""

Floats = npt.NDArray[np.float32]


def count_positions(limit: int, search: SearchSettings) -> int:
    """Returns how many positions a model needs whose longest source sentence has `limit` pieces."""
    longest = int(find_limits([limit + 1], search)[0])
    return min(MOST_POSITIONS, max(LEAST_POSITIONS, limit + 1, longest))


def make_spec(settings: TransformerSettings, weights: Weights, vocabulary: Vocabulary, positions: Floats) -> Any:
    """Returns CTranslate2's description of the model, with all weights. `positions` is the table of the trainer's model,
    `[positions, width]`; CTranslate2's own one starts at position 1 and has another exponent."""
    specs = import_ctranslate2().specs
    is_pre_norm = settings.norm == "pre"
    spec = specs.TransformerSpec.from_config(
        (settings.encoder_layers, settings.decoder_layers),
        settings.heads,
        pre_norm=is_pre_norm,
        activation=specs.Activation.RELU,
        alignment_layer=max(-2, -settings.decoder_layers),  # the last but one aligns words best
        alignment_heads=0,  # the mean of all heads
    )
    take = _Taker(weights)
    for side, embeddings in ((spec.encoder, spec.encoder.embeddings[0]), (spec.decoder, spec.decoder.embeddings)):
        embeddings.weight = take("embedding.weight")
        side.position_encodings.encodings = positions
    spec.decoder.projection.weight = take("embedding.weight")
    for i, layer in enumerate(spec.encoder.layer):
        _set_self_attention(layer.self_attention, take, f"encoder.{i}.attention")
        _set_feed_forward(layer.ffn, take, f"encoder.{i}.feed_forward")
    for i, layer in enumerate(spec.decoder.layer):
        _set_self_attention(layer.self_attention, take, f"decoder.{i}.attention")
        _set_source_attention(layer.attention, take, f"decoder.{i}.source")
        _set_feed_forward(layer.ffn, take, f"decoder.{i}.feed_forward")
    if is_pre_norm:
        _set_norm(spec.encoder.layer_norm, take, "encoder_norm")
        _set_norm(spec.decoder.layer_norm, take, "decoder_norm")
    take.check_all_taken()
    pieces = vocabulary.pieces
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (pieces[i] for i in (1, 2, 3))
    spec.config.decoder_start_token, spec.config.add_source_eos = spec.config.bos_token, True
    spec.config.layer_norm_epsilon = 1e-5
    return spec


class _Taker:
    """Takes weights by name, and knows which were never taken: none of a model may be lost."""

    def __init__(self, weights: Weights) -> None:
        self._weights, self._left = weights, set(weights)

    def __call__(self, name: str) -> Floats:
        self._left.discard(name)
        return self._weights[name].astype(np.float32)

    def check_all_taken(self) -> None:
        if self._left:
            raise ValueError(f"the export has no place for {', '.join(sorted(self._left))}")


Take = Callable[[str], Floats]


def _set_norm(spec: Any, take: Take, name: str) -> None:
    spec.gamma, spec.beta = take(f"{name}.weight"), take(f"{name}.bias")


def _set_self_attention(spec: Any, take: Take, name: str) -> None:
    """One product computes queries, keys and values."""
    query, key_value = take(f"{name}.sub_layer.query.weight"), take(f"{name}.sub_layer.key_value.weight")
    spec.linear[0].weight = np.concatenate([query, key_value])  # [3 * width, width]
    spec.linear[1].weight = take(f"{name}.sub_layer.output.weight")
    _set_norm(spec.layer_norm, take, f"{name}.norm")


def _set_source_attention(spec: Any, take: Take, name: str) -> None:
    for linear, part in zip(spec.linear, ("query", "key_value", "output"), strict=True):
        linear.weight = take(f"{name}.sub_layer.{part}.weight")
    _set_norm(spec.layer_norm, take, f"{name}.norm")


def _set_feed_forward(spec: Any, take: Take, name: str) -> None:
    for linear, part in ((spec.linear_0, "inner"), (spec.linear_1, "outer")):
        linear.weight, linear.bias = take(f"{name}.sub_layer.{part}.weight"), take(f"{name}.sub_layer.{part}.bias")
    _set_norm(spec.layer_norm, take, f"{name}.norm")


def write_model(folder: Path, spec: Any, quantization: str) -> None:
    """Writes CTranslate2's files into an existing folder."""
    spec.validate()
    spec.optimize(quantization=QUANTIZATIONS[quantization])
    spec.save(str(folder))
