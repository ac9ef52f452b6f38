"""Launches on clusters: one description of a job, and one file per kind of cluster. No torch is imported here."""
