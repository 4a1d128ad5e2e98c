"""What a pull request shows: the engine's previews and what they mean for workers, as one comment."""
