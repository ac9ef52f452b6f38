"""Reads a run directory and says what happened."""
