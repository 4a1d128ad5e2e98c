"""Who instances, functions and previews are."""
