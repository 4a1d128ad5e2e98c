"""The position of a data loader, and its workers: their signals and random numbers."""
