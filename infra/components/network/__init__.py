"""The VPC, of the stack's own or given, and its ways out."""
