"""Entries of ``sharedHosts[]``."""
