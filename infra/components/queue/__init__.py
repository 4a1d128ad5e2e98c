"""What services' workers read from."""
