"""Case studies: what the planner says about published runs."""
