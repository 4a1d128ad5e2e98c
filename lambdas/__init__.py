"""The Lambda functions: handlers, AWS adapters, and pure decision logic."""
