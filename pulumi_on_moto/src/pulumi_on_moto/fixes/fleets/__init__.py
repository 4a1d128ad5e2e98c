"""Spot Fleets: recorded requests with members, and what moto gets wrong about them."""
