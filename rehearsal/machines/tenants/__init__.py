"""A simulated shared host: its containers and the account of its tenants."""
