"""A service's workers on an instance: their reports and roll-outs."""
