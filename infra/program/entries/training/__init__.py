"""Entries of ``training[]`` on instances, and what prepares their datasets."""
