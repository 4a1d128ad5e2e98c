"""IAM of entries on Kubernetes."""
