"""Reads, makes and augments labelled images."""
