"""Predicts step time, speed-up and cost of a job on a cluster that need not exist yet."""
