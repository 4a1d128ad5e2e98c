"""Replays in which policies are compared: what no operator and no rehearsal needs."""
