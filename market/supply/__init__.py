"""Spot capacity: traces, the fitted model, and their capacity pools."""
