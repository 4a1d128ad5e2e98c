"""The RabbitMQ transport, on pika."""
