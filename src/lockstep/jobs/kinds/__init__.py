"""One file per kind of cluster."""
