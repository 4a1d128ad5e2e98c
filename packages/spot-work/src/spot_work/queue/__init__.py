"""A queue as workers and clients see it: settings, URL, and the interfaces that each transport implements."""
