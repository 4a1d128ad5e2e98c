"""Queues in RabbitMQ: a broker of the stack's own in Amazon MQ, or one that is there."""
