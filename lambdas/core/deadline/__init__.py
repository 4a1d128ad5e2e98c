"""A training job under a deadline: what it should hold now, and the rules that keep the deadline."""
