"""The VPC, created or existing, its endpoints and outbound access."""
