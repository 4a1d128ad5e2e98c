"""Fixes of moto's EC2: instances and Spot."""
