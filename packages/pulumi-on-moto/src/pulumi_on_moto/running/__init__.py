"""Runtime of a deployment: simulated time, events by the deployed rules, deployed functions."""
