"""Reading, cleaning, vocabulary, binary corpus and the global batch order."""
