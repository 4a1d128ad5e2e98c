"""Verifies on AWS the behavior that this product takes from AWS documentation only.

``assumptions`` are the statements, ``aws_test_bed`` creates the resources to test them, ``trial`` runs the
tests and ``cleaning`` deletes the resources. On moto (package ``rehearsal``) only the program itself is
tested.
"""
