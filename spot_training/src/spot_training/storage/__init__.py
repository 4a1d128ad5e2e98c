"""Where checkpoints are kept: a folder on a disk or on EFS, or S3."""
