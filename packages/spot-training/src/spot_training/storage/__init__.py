"""Storage of checkpoints: a directory on a disk or on EFS, or S3."""
