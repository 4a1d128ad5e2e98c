"""The hourly cost of a group, and the accumulated cost of a job's run."""
