"""What one part writes and another reads: names, parameters, rows, the agent's settings; one codec."""
