"""Known corpora: where they come from and how they are fetched."""
