"""Images of tenants: their pull, with the secrets for it, and the versions of the programs that run them."""
