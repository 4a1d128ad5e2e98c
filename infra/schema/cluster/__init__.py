"""The stack file's `kubernetes`: what runs there, and a cluster that the stack creates."""
