"""In-place rollout of a new release to a service's workers, in batches, with automatic rollback."""
