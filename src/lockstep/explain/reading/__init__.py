"""Reads a run directory into typed columns and records."""
