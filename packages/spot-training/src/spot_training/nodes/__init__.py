"""The nodes of one training: which of them train together, and how survivors go on after a loss."""
