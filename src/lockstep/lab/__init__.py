"""Experiments on runs: emulated networks, studies, predictions."""
