"""A new release for a service's workers: in place, in batches, and back where it is no good.

Pure; the health checker calls `step.step` with what it sees. What is remembered: `memory.Rollout`.
"""
