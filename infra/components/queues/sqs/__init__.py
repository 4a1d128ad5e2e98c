"""SQS queues, created by the stack or existing."""
