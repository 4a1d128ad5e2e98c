"""Worlds in which services are scaled: rules, fleets, replays of days."""
