"""Presentation of a finished rehearsal: terminal summary, HTML page, SVG picture."""
