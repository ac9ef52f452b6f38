"""Reads and cleans parallel text."""
