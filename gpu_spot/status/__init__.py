"""What a deployed stack does now, in one view: only reads."""
