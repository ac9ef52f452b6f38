"""The command line: the only place that talks to a person."""
