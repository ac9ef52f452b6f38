"""Draws charts and self-contained HTML pages."""
