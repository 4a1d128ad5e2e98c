"""The pull request comment: the engine's previews and their effects on workers."""
