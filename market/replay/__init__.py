"""The one replay engine, the fleet that it plays with, and the account that it keeps."""
