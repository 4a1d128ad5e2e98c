"""Benchmarks by a rehearsal: a deployment's time, a training job's day."""
