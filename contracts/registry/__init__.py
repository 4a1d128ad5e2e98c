"""The worker registry: rows of workers, their reports, the state of queues."""
