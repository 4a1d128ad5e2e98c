"""The policy pack that the engine runs on every preview."""
