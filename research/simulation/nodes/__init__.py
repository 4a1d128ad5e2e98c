"""Trainings of several nodes: a market's nodes over time, and the steps that a rule for losses keeps.

Pure; it imports `market.rules`, `market.supply` and the boot's seconds. `make bench-nodes` and tests call it.
"""
