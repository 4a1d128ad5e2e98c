"""The local cloud of a rehearsal: instances, heartbeats and injected faults."""
