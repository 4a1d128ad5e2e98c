"""The job table: a job's item and its attempts."""
