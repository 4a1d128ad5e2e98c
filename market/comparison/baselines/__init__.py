"""Policies to compare with. They are not offered to a stack: each starves, overpays, or knows too much."""
