"""The rehearsed cloud: its instances, their heartbeats, and injected faults."""
