"""Shared hosts: what the tenants of a machine need in AWS."""
