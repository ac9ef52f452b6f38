"""The loop, schedules, checkpoints and collective decisions."""
