"""RabbitMQ queues: on a broker that the stack creates in Amazon MQ, or on an existing one."""
