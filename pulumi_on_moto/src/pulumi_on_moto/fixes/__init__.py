"""Differences between moto and AWS, each fixed while a sandbox is open."""
