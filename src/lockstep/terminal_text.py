"""Text from files, names and settings as a terminal may show it: without the characters that a terminal obeys."""

import re

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but line feed and tab, characters that reverse the order of others, and halves of characters."""


def strip_controls(text: str) -> str:
    """Removes what could move the cursor, colour or hide other text, or rename the window."""
    return CONTROLS.sub("", text)


def escape_controls(json_text: str) -> str:
    """Writes these characters as `\\uXXXX`: the JSON has the same meaning, and a terminal shows it as text."""
    return CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", json_text)
