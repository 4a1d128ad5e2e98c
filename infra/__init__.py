"""The Pulumi program: network, identities, GPU capacity, and the functions that manage it."""
