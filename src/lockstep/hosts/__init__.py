"""The machines of a launch: which they are, and how a command talks to them. No torch is imported here."""
