"""Who instances, functions, previews and deployments are."""
