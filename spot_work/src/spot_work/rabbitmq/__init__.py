"""Requests and answers through RabbitMQ, by pika."""
