"""What outlives instances."""
