"""Measures a run: the figures that several answers, the verdict and the advice share."""
