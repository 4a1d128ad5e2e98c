"""Training jobs under a deadline: one instance, one pool, and which market it is bought in when."""
