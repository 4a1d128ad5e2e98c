"""Queues in SQS: the stack's own, or two that are there."""
