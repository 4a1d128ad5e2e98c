"""A shared host in simulated time: its containers, what the kernel shows of them, and what tenants want."""
