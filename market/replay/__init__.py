"""The replay engine, its fleets, and the ledger of results."""
