"""Entries that run on Kubernetes."""
