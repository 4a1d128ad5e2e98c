"""Load on a service: who asks when, how long it waits, and what rules of scaling make of it on a market."""
