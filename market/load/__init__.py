"""Load on a service: requests, their waiting times, and scaling rules replayed on a market."""
