"""What the agent asks of AWS: clients, metadata, hooks, job table, registry; and its permissions."""
