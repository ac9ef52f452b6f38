"""Residual networks for small images. They take bytes, as images are stored, and give a score for each class.

Depth 6n + 2 is the network of He et al. (2015), section 4.2: three stages of n blocks with 16, 32 and 64 channels, and
shortcuts without parameters (option A). Depth 9 is a short and wide one in the manner of the DAWNBench entries: it needs
few passes over the images.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.models.batch_norm import BatchNorm
from lockstep.models.model_settings import ResNetSettings

SHORT_SCALE = 1 / 8
"""The short network learns at high rates: its scores start small, so that the first steps do not throw it about."""


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut. Where the image shrinks, the shortcut takes every second point and leaves the
    new channels at zero."""

    def __init__(self, channels_in: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.stride, self.new_channels = stride, channels - channels_in
        self.first = _convolution(channels_in, channels, stride)
        self.first_norm = BatchNorm(channels)
        self.second = _convolution(channels, channels)
        self.second_norm = BatchNorm(channels)

    def forward(self, values: Tensor) -> Tensor:
        inner = F.relu(self.first_norm(self.first(values)), inplace=True)
        inner = self.second_norm(self.second(inner))
        if self.stride > 1:
            values = values[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            values = F.pad(values, (0, 0, 0, 0, 0, self.new_channels))
        return F.relu(inner + values, inplace=True)


class ConvLayer(nn.Module):
    """A convolution, and a step down to half the size where `shrinks`."""

    def __init__(self, channels_in: int, channels: int, shrinks: bool = False) -> None:
        super().__init__()
        self.shrinks = shrinks
        self.convolution = _convolution(channels_in, channels)
        self.norm = BatchNorm(channels)

    def forward(self, values: Tensor) -> Tensor:
        values = self.convolution(values)
        if self.shrinks:
            values = F.max_pool2d(values, 2)
        return F.relu(self.norm(values), inplace=True)


class Beside(nn.Module):
    """Two layers beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = ConvLayer(channels, channels), ConvLayer(channels, channels)

    def forward(self, values: Tensor) -> Tensor:
        added: Tensor = values + self.second(self.first(values))
        return added


def _convolution(channels_in: int, channels: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels, kernel_size=3, stride=stride, padding=1, bias=False)


def _paper(depth: int, width: int, channels: int) -> list[nn.Module]:
    layers: list[nn.Module] = [ConvLayer(channels, width)]
    before = width
    for stage in range(3):
        for number in range((depth - 2) // 6):
            layers.append(ResidualBlock(before, width << stage, stride=2 if stage and not number else 1))
            before = width << stage
    return layers


def _short(width: int, channels: int) -> list[nn.Module]:
    return [
        ConvLayer(channels, width),
        ConvLayer(width, 2 * width, shrinks=True),
        Beside(2 * width),
        ConvLayer(2 * width, 4 * width, shrinks=True),
        ConvLayer(4 * width, 8 * width, shrinks=True),
        Beside(8 * width),
    ]


class ResNet(nn.Module):
    def __init__(self, settings: ResNetSettings, channels: int, classes: int) -> None:
        super().__init__()
        short, width = settings.depth == 9, settings.first_channels
        self.layers = nn.ModuleList(_short(width, channels) if short else _paper(settings.depth, width, channels))
        self.short = short
        self.output = nn.Linear(8 * width if short else 4 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):  # He et al. (2015), "Delving deep into rectifiers"
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, values: Tensor) -> Tensor:
        """`[images, channels, height, width]` -> `[images, classes]`"""
        for layer in self.layers:
            values = layer(values)
        pooled = values.amax((2, 3)) if self.short else values.mean((2, 3))  # [images, channels]
        scores: Tensor = self.output(pooled)
        return scores * SHORT_SCALE if self.short else scores
