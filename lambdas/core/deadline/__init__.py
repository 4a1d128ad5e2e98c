"""Training jobs with a deadline: the capacity to hold, and the rules that meet the deadline."""
