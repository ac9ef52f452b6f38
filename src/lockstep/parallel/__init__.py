"""How gradients cross processes: one file per strategy."""
