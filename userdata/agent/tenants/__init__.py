"""Tenants of a shared host: ``plan`` says who gets what of the machine, from the list that ``codec`` reads.

Both sides plan with this code: the stack's program before anything is bought, the host before it starts
anything.
"""
