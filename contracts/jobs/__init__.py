"""The job table: the item of a job, and its attempts."""
