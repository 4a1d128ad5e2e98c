"""The VPC and its ways out."""
