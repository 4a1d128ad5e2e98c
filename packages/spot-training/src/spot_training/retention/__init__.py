"""Which checkpoints stay beside the newest ones: the rules, and the deletion of all others."""
