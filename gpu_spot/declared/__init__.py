"""What operators' commands know of a stack before its deployment: its file, and what its program declares.

It needs the Pulumi SDK alone: no engine, no AWS, no moto.
"""
