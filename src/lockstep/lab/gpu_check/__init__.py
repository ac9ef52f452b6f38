"""Tries everything that a GPU does differently on this machine: `lockstep doctor --gpu`."""
