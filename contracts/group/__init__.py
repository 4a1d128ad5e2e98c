"""A capacity group's parameters: what the program declares, and what functions write for each other."""
