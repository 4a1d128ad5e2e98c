"""Services' queues: a package for each kind of queue, listed in ``kinds``."""
