"""Starts processes on this machine and watches them until they end."""
