"""A cluster's API, in memory: what a program declares through a provider for Kubernetes."""
