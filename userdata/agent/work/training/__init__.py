"""A training run on an instance: code, environment, progress, artifacts, record."""
