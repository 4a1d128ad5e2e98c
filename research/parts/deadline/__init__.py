"""Parts of the benchmark of deadlines."""
