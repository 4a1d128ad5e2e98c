"""Health of a service's workers: detection, remediation, incidents and notifications.

Pure functions: ``lambdas/aws/health/checker.py`` reads the state from AWS, ``decision.decide`` decides.
"""
