"""What runs on a GPU instance."""
