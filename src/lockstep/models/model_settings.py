"""Settings of the models: the `model` section of a configuration."""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from lockstep.settings import FIXED, NamedSettings, Settings

T = TypeVar("T")


class TransformerSettings(Settings):
    """The encoder-decoder of "Attention is all you need", with one embedding shared by source, target and output."""

    name: Annotated[Literal["transformer"], FIXED] = "transformer"
    """Which model."""
    encoder_layers: Annotated[int, Field(ge=1), FIXED] = 6
    """Layers that read the source sentence."""
    decoder_layers: Annotated[int, Field(ge=1), FIXED] = 6
    """Layers that write the target sentence."""
    width: Annotated[int, Field(ge=2), FIXED] = 512
    """Size of the vector that represents a word between layers, and of an LSTM's state."""
    feed_forward: Annotated[int, Field(ge=1), FIXED] = 2048
    """Size of the hidden layer in each feed-forward block."""
    heads: Annotated[int, Field(ge=1), FIXED] = 8
    """Attention heads; model.width must be a multiple of it."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Share of values set to zero in training. transformer: after embeddings and blocks, in attention weights and
    feed-forward; lstm: before every layer and the output."""
    attention_dropout: float | None = Field(None, ge=0.0, lt=1.0)
    """Dropout of the attention weights, if different; 0 lets GPUs attend without padding (bf16 and fp16)."""
    norm: Annotated[Literal["pre", "post"], FIXED] = "pre"
    """Layer norm before each block (trains more steadily) or after it (the original paper)."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"model.width {self.width} is not a multiple of model.heads {self.heads}")
        if self.width % 2:
            raise ValueError(f"model.width {self.width} must be even, because positions are sine and cosine pairs")
        return self

    @property
    def activations_per_word(self) -> int:
        """A lower bound on the values per word that the forward pass stores for the backward pass."""
        return 24 * (self.encoder_layers + self.decoder_layers) * self.width


class LstmSettings(NamedSettings):
    """The encoder-decoder of field report 5: bidirectional LSTM encoder, LSTM decoder, dot-product attention, no shared
    weights."""

    name: Annotated[Literal["lstm"], FIXED] = "lstm"
    """Which model."""
    encoder_layers: Annotated[int, Field(ge=1), FIXED] = 2
    """Layers that read the source sentence."""
    decoder_layers: Annotated[int, Field(ge=2), FIXED] = 4
    """Layers that write the target sentence."""
    width: Annotated[int, Field(ge=1), FIXED] = 512
    """Size of the vector that represents a word between layers, and of an LSTM's state."""
    dropout: float = Field(0.2, ge=0.0, lt=1.0)
    """Share of values set to zero in training. transformer: after embeddings and blocks, in attention weights and
    feed-forward; lstm: before every layer and the output."""

    @property
    def activations_per_word(self) -> int:
        """A lower bound on the values per word that the forward pass stores for the backward pass."""
        return 8 * (2 * self.encoder_layers + self.decoder_layers) * self.width


class ResNetSettings(NamedSettings):
    """A residual network for small images: the one of He et al. (2015) for CIFAR-10, or a short one for speed."""

    name: Annotated[Literal["resnet"], FIXED] = "resnet"
    """Which model."""
    depth: Annotated[int, Field(ge=8), FIXED] = 20
    """Layers with weights: 6n + 2 as in the paper (20, 32, 44, 56, 110), or 9 for the short and wide one."""
    channels: Annotated[int | None, Field(ge=1), FIXED] = None
    """Channels of the first layer; when not given, 16 as in the paper, and 64 for depth 9."""

    @property
    def first_channels(self) -> int:
        """The channels of the first layer, with the default of the depth filled in."""
        return self.channels or (64 if self.depth == 9 else 16)

    @model_validator(mode="after")
    def _depth_is_known(self) -> Self:
        if self.depth != 9 and self.depth % 6 != 2:
            raise ValueError(f"model.depth {self.depth} is neither 9 nor 6n + 2 (20, 32, 44, 56, 110)")
        return self

    @property
    def activations_per_word(self) -> int:
        """Zero: the activations of images are too small to allocate memory for in advance."""
        return 0


def _default_to_transformer(value: T) -> T | dict[str, object]:
    """Adds the name of the Transformer to settings without a model name."""
    return {"name": "transformer"} | value if isinstance(value, dict) else value


TranslationSettings = TransformerSettings | LstmSettings
_BY_NAME = Field(discriminator="name")
NamedTranslation = Annotated[TranslationSettings, _BY_NAME, BeforeValidator(_default_to_transformer)]
"""The settings of a translation model, distinguished by `name`."""
ModelSettings = Annotated[TranslationSettings | ResNetSettings, _BY_NAME, BeforeValidator(_default_to_transformer)]
"""The settings of any model, distinguished by `name`."""
