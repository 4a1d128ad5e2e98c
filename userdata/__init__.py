"""Code that runs on GPU instances."""
