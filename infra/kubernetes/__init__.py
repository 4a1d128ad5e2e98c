"""Kubernetes manifests of entries, as plain dictionaries; pure functions."""
