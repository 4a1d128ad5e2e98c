"""What a preview's changes do to workers, by resource."""
