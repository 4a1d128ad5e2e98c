"""The operator's part of the command `spot-work`: a queue's status, its dead letters, sending them again."""
