"""Simulated EBS: volumes, snapshots, and the copied blocks."""
