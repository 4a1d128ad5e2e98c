"""The simulated Spot market: capacity traces, the replay engine, and the evaluation of policies."""
