"""Trainings as people write them, each a script of habits, for the kills of ``harness.py``."""
