"""Contracts of the node agent: names, limits, the configuration and its JSON format."""
