"""AWS access of the agent: clients, metadata, hooks, job table, registry; and its permissions."""
