"""Runs Pulumi programs: creates registered resources, shows and compares deployments."""
