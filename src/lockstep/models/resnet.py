"""Residual networks for small images.

Depth 6n + 2 is the network of He et al. (2015), section 4.2: three stages of n blocks with 16, 32 and 64 channels, and
shortcuts without parameters (option A). Depth 9 is a short and wide network like the DAWNBench entries, which needs few
epochs.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models.batch_norm import BatchNorm
from lockstep.models.model_settings import ResNetSettings

SHORT_LOGIT_SCALE = 1 / 8
"""The short network is trained with high learning rates. Small logits keep its first steps stable."""


class ResidualBlock(nn.Module):
    """Two convolutions with a shortcut. With a stride, the shortcut takes every second pixel and leaves the new channels
    at zero."""

    def __init__(self, channels_in: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.stride, self.new_channels = stride, channels - channels_in
        self.first = _make_convolution(channels_in, channels, stride)
        self.first_norm = BatchNorm(channels)
        self.second = _make_convolution(channels, channels)
        self.second_norm = BatchNorm(channels)

    def forward(self, values: Tensor) -> Tensor:
        """`[images, channels_in, height, width]` -> `[images, channels, height / stride, width / stride]`."""
        residual = F.relu(self.first_norm(self.first(values)), inplace=True)
        residual = self.second_norm(self.second(residual))
        if self.stride > 1:
            values = values[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            values = F.pad(values, (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(residual + values, inplace=True)


def _halve(values: Tensor) -> Tensor:
    """Takes the largest of every two by two values: [images, channels, height, width] to half of height and width. The
    backward pass of torch's max pooling adds in no fixed order on CUDA; this one splits the gradient of equal values."""
    if not torch.are_deterministic_algorithms_enabled():
        return F.max_pool2d(values, 2)
    height, width = values.shape[2] // 2, values.shape[3] // 2
    even = values[:, :, : 2 * height, : 2 * width]
    return even.unflatten(3, (width, 2)).unflatten(2, (height, 2)).amax((3, 5))


class ConvLayer(nn.Module):
    """Convolution, batch norm and ReLU; with `halves`, max pooling halves height and width."""

    def __init__(self, channels_in: int, channels: int, halves: bool = False) -> None:
        super().__init__()
        self.halves = halves
        self.convolution = _make_convolution(channels_in, channels)
        self.norm = BatchNorm(channels)

    def forward(self, values: Tensor) -> Tensor:
        values = self.convolution(values)
        if self.halves:
            values = _halve(values)
        return F.relu(self.norm(values), inplace=True)


class ConvLayerPair(nn.Module):
    """Two convolution layers with a shortcut around both."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = ConvLayer(channels, channels), ConvLayer(channels, channels)

    def forward(self, values: Tensor) -> Tensor:
        result: Tensor = values + self.second(self.first(values))
        return result


def _make_convolution(channels_in: int, channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels, kernel_size=3, stride=stride, padding=1, bias=False)


def _make_paper_layers(depth: int, width: int, channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = [ConvLayer(channels, width)]
    channels_in = width
    for stage in range(3):
        for number in range((depth - 2) // 6):
            layers.append(ResidualBlock(channels_in, width << stage, stride=2 if stage and not number else 1))
            channels_in = width << stage
    return layers


def _make_short_layers(width: int, channels: int) -> list[nn.Module]:
    return [
        ConvLayer(channels, width),
        ConvLayer(width, 2 * width, halves=True),
        ConvLayerPair(2 * width),
        ConvLayer(2 * width, 4 * width, halves=True),
        ConvLayer(4 * width, 8 * width, halves=True),
        ConvLayerPair(8 * width),
    ]


class ResNet(nn.Module):
    """Scores every class for images: the network of the paper, or the short one for depth 9."""

    def __init__(self, settings: ResNetSettings, channels: int, classes: int) -> None:
        super().__init__()
        self.is_short, width = settings.depth == 9, settings.first_channels
        layers = (
            _make_short_layers(width, channels)
            if self.is_short
            else _make_paper_layers(settings.depth, width, channels)
        )
        self.layers = nn.ModuleList(layers)
        self.output = nn.Linear(8 * width if self.is_short else 4 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):  # He et al. (2015), "Delving deep into rectifiers"
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, values: Tensor) -> Tensor:
        """`[images, channels, height, width]` -> logits `[images, classes]`."""
        for layer in self.layers:
            values = layer(values)
        pooled = values.amax((2, 3)) if self.is_short else values.mean((2, 3))  # [images, channels]
        logits: Tensor = self.output(pooled)
        return logits * SHORT_LOGIT_SCALE if self.is_short else logits
