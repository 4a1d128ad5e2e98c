"""Entries of ``services[]`` on instances, and their workers on premises."""
