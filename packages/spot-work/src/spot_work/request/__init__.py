"""A request: its message, deadline and trace, and those of a client that are open."""
