"""Tenants of a shared host: ``plan`` divides the machine between the tenants in the list.

The Pulumi program plans with this code before a deployment, the host before it starts containers.
"""
