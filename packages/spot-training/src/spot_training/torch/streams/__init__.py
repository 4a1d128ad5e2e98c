"""The position of a loader over an ``IterableDataset``: a stream with a state, or one that is read again."""
