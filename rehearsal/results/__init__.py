"""What a finished rehearsal is: plain facts, below those who play it and those who show it."""
