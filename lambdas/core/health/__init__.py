"""Is the work done? Verdicts over workers and instances, what is done, and what people hear.

Pure: the adapter (``lambdas/aws/health/checker.py``) shows what is there, ``judge.decide`` says what follows.
"""
