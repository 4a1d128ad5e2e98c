"""What the agent is told: names, limits, the configuration and its strict JSON."""
