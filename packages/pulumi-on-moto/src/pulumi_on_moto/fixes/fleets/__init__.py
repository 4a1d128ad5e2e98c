"""Spot Fleets: recorded requests with members, and fixes of moto's Spot Fleets."""
