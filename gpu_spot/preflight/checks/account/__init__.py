"""Checks of the account, independent of the stack."""
