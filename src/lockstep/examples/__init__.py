"""Published runs, explained with the planner."""
