"""The local cloud of a rehearsal: instances and heartbeats."""
