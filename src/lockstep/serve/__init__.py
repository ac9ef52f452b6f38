"""Serves translations over HTTP, with LibreTranslate's interface, and a page to try them. Does not import torch."""
