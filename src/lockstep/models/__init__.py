"""Models as plain `nn.Module`s, without training logic."""
