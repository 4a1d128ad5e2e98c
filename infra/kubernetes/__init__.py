"""Kubernetes objects of the entries that run there: pure, plain dictionaries as YAML has them."""
