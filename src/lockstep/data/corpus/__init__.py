"""Prepares the binary corpus, the vocabulary and the global batch order."""
