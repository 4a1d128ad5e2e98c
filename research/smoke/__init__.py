"""A smoke test on AWS: a stack whose instance really boots, and the beliefs that everything rests on.

It has never run on AWS. ``python -m research.smoke`` is for maintainers: it is not a command of ``gpu-spot``.
"""
