"""Pulumi components, one module each. Components do not read the stack configuration."""
