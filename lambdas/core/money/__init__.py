"""What a group costs per hour, and what a job's run has cost."""
