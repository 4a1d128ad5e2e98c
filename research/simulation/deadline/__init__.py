"""Training jobs with a deadline: one instance in one pool, on Spot or On-Demand at any time."""
