"""AWS resources of the tenants of shared hosts."""
