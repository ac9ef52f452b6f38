"""The eleven questions of a report, one file each."""
