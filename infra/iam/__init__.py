"""All IAM statements of the stack."""
