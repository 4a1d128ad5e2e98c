"""File systems of an instance: the job's data volume, shared datasets, EFS, scratch space."""
