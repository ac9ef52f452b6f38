"""Predictions: what a cluster would give, before it is paid for."""
