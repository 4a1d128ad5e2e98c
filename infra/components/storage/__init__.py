"""Storage that outlives instances: file system, buckets, repositories."""
