"""Decisions: pure functions over frozen dataclasses, the standard library only."""
