"""The Pulumi program: network, identities, GPU capacity, and the functions that keep it full."""
