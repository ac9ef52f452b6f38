"""Starts the same worker anywhere."""
