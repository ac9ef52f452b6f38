"""Experiments with jobs: plans, studies, ablations and rehearsals on emulated networks."""
