"""Interruption drills: Spot Instances are interrupted on purpose and the recovery is measured."""
