"""GPU capacity: capacity groups, their launch templates and parameters."""
