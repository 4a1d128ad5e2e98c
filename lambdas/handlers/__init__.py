"""Entry points of the Lambda functions."""
