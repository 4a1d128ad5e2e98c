"""AWS adapters of the functions, with injected clients."""
