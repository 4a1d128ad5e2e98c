"""Hourly budgets: of a group and of the stack."""
