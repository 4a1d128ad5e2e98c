"""What a run cost and lost: hours by market, dollars, phases, repeated work, for the terminal and a page."""
