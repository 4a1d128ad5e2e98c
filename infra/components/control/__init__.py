"""The controller: its function, its memory, what wakes it."""
