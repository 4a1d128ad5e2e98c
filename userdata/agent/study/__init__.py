"""Studies: which trial is next, with which parameters, and which one is pruned."""
