"""Comparison of capacity policies on one market, with the clairvoyant lower bound of the cost."""
