"""Lockstep trains sequence-to-sequence models in parallel and explains every run."""

__version__ = "0.1.0"
