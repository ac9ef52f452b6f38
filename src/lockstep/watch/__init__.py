"""Measurements of a run while it trains: phase clock, samples of the machine, FLOPs, link, console and TensorBoard."""
