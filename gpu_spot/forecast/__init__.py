"""What a stack file will cost and serve before it is deployed, and which one would do better."""
