"""Capacity policies side by side on one market, beside what a clairvoyant would pay."""
