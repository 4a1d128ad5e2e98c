"""The queue watcher, and a reader for each kind of queue."""
