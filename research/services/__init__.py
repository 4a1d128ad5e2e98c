"""Benchmarks of services: scaling rules and roll-outs."""
