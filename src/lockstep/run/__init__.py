"""The run directory, its checkpoints and its journal. Nothing here imports torch."""
