"""What IAM allows: the policies of this stack, tried with credentials of their own or simulated."""
