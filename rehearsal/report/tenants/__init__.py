"""Presentation of a rehearsed shared host: its tenants and their moves."""
