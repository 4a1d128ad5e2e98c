"""Real processes of a rehearsal: job commands, service workers, broker and load client."""
