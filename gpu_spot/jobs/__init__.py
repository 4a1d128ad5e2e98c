"""Training jobs of a deployed stack: their state, their timeline, and the actions on them."""
