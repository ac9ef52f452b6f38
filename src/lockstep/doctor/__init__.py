"""Looks at the machines of a launch before it costs anything. No torch is imported here."""
