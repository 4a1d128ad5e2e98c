"""Checks an account and region for problems before the first ``pulumi up`` of a stack.

Read-only: ``stack`` reads the stack file, ``checks`` read the account. A failed check names the action to
take.
"""
