"""A shared host in simulated time: its containers, and the account of its tenants."""
