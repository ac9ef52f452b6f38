"""The run folder for hosts that do not share it: a service of the first worker's host, and its clients. No torch."""
