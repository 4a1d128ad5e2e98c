"""The AWS side of entries on Kubernetes."""
