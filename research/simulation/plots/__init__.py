"""Plots of comparisons: cost against shortage, regret, cost against wait."""
