"""The kinds of entries of a stack file, one package each."""
