"""In-place rollout of a new release to a service's workers, in batches, with automatic rollback.

Pure functions; the health checker calls `step.plan_step` with the observed state. State: `memory.Rollout`.
"""
