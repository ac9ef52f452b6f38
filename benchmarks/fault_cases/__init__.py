"""The faults of `benchmarks/faults.py`: what they are, where they happen and how a trial is run."""
