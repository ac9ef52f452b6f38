"""The run directory: no torch is imported here."""
