"""Makes a corpus from the pieces of a catalog entry: one module for each kind of source."""
