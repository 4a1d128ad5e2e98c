"""What a request carries besides its value: a deadline."""
