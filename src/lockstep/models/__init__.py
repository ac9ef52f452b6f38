"""Plain modules without training logic."""
