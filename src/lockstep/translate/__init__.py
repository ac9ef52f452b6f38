"""Beam search and translation with a trained model."""
