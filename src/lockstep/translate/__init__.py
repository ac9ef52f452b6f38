"""Decoding with a trained model."""
