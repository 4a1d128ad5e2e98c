"""File systems of an instance: the data volume that follows its job, shared datasets, EFS."""
