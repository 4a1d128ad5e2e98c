"""The audit of a ``Loop``: what a restart would not resume, found before the first interruption."""
