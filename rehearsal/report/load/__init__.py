"""Presentation of a load on a service: figure and text."""
