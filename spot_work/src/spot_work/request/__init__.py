"""What a request carries besides its value: a deadline, and the trace that it belongs to."""
