"""The kinds of entries of a stack file, a folder each."""
