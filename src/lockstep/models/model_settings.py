"""Settings of the models: the `model` section of a configuration."""

from typing import Annotated, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from lockstep.settings import FIXED, NamedSettings, Settings

T = TypeVar("T")


class TransformerSettings(Settings):
    """The encoder-decoder of "Attention is all you need", with one embedding shared by source, target and output."""

    name: Annotated[Literal["transformer"], FIXED] = "transformer"
    """The model: `transformer` or `lstm` for translation, `resnet` for images. Each has its own settings."""
    encoder_layers: Annotated[int, Field(ge=1), FIXED] = 6
    """Number of encoder layers, which read the source sentence."""
    decoder_layers: Annotated[int, Field(ge=1), FIXED] = 6
    """Number of decoder layers, which write the target sentence."""
    width: Annotated[int, Field(ge=2), FIXED] = 512
    """Size of the embeddings and of the hidden states (d_model of a Transformer)."""
    feed_forward: Annotated[int, Field(ge=1), FIXED] = 2048
    """Size of the hidden layer in each feed-forward block (d_ff)."""
    heads: Annotated[int, Field(ge=1), FIXED] = 8
    """Attention heads per layer; model.width must be a multiple of it."""
    dropout: float = Field(0.1, ge=0.0, lt=1.0)
    """Share of values that dropout sets to zero in training. transformer: after embeddings and blocks, in attention
    weights and feed-forward blocks; lstm: before every layer and the output."""
    attention_dropout: float | None = Field(None, ge=0.0, lt=1.0)
    """Dropout of the attention weights. null: the same as model.dropout."""
    norm: Annotated[Literal["pre", "post"], FIXED] = "pre"
    """Layer normalization before each block (`pre`, trains more steadily) or after it (`post`, the original paper)."""

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"model.width {self.width} is not a multiple of model.heads {self.heads}")
        if self.width % 2:
            raise ValueError(f"model.width {self.width} must be even: positions are pairs of sine and cosine")
        return self

    @property
    def activations_per_word(self) -> int:
        """A lower bound of the values per word that a forward pass keeps for the backward pass."""
        return 24 * (self.encoder_layers + self.decoder_layers) * self.width


class LstmSettings(NamedSettings):
    """The encoder-decoder of field report 5: a bidirectional LSTM encoder, an LSTM decoder with dot-product attention, and
    separate embeddings."""

    name: Annotated[Literal["lstm"], FIXED] = "lstm"
    """The model: `transformer` or `lstm` for translation, `resnet` for images. Each has its own settings."""
    encoder_layers: Annotated[int, Field(ge=1), FIXED] = 2
    """Number of encoder layers, which read the source sentence."""
    decoder_layers: Annotated[int, Field(ge=2), FIXED] = 4
    """Number of decoder layers, which write the target sentence."""
    width: Annotated[int, Field(ge=1), FIXED] = 512
    """Size of the embeddings and of the hidden states (d_model of a Transformer)."""
    dropout: float = Field(0.2, ge=0.0, lt=1.0)
    """Share of values that dropout sets to zero in training. transformer: after embeddings and blocks, in attention
    weights and feed-forward blocks; lstm: before every layer and the output."""

    @property
    def activations_per_word(self) -> int:
        """A lower bound of the values per word that a forward pass keeps for the backward pass."""
        return 8 * (2 * self.encoder_layers + self.decoder_layers) * self.width


class ResNetSettings(NamedSettings):
    """A residual network for small images: the one of He et al. (2015) for CIFAR-10, or a shallow, wide
    one that trains fast."""

    name: Annotated[Literal["resnet"], FIXED] = "resnet"
    """The model: `transformer` or `lstm` for translation, `resnet` for images. Each has its own settings."""
    depth: Annotated[int, Field(ge=8), FIXED] = 20
    """Layers with weights: 6n + 2 as in the paper (20, 32, 44, 56, 110), or 9 for the shallow, wide network."""
    channels: Annotated[int | None, Field(ge=1), FIXED] = None
    """Channels of the first layer. null: 16 as in the paper, or 64 if model.depth is 9."""

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
        """Zero: images need no memory prepared in advance."""
        return 0


def _named(value: T) -> T | dict[str, object]:
    """Adds the name of the default model, `transformer`, to settings without a name."""
    return {"name": "transformer"} | value if isinstance(value, dict) else value


TranslationSettings = TransformerSettings | LstmSettings
_BY_NAME = Field(discriminator="name")
NamedTranslation = Annotated[TranslationSettings, _BY_NAME, BeforeValidator(_named)]
"""The settings of a translation model, distinguished by their name."""
ModelSettings = Annotated[TranslationSettings | ResNetSettings, _BY_NAME, BeforeValidator(_named)]
"""The settings of any model, distinguished by their name."""
