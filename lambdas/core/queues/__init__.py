"""RabbitMQ's management API, and a queue's rates from its counters."""
