"""How the pieces of a catalog entry become a corpus: one module per kind of source."""
