"""The worker registry: items of workers, their reports, the state of queues."""
