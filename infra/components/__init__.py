"""Pulumi components, a module each. None reads the stack configuration."""
