"""Entries of ``training[]`` on instances, and the builders of their datasets."""
