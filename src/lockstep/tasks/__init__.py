"""Tasks: data and model together, with their loss and their metric."""
