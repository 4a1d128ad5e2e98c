"""GPU capacity: both sides of a group, and how they start instances."""
