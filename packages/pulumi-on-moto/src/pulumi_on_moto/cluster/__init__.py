"""An in-memory Kubernetes API for resources that a program declares with a Kubernetes provider."""
