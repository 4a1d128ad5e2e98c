"""Settings of ``services[].queue``, one module for each kind of queue."""
