"""One stack: foundation, entries, operations, outputs."""
