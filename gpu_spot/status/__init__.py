"""The current state of a deployed stack; read-only."""
