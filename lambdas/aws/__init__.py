"""Adapters of AWS with injected clients, a room for each function."""
