"""Real processes of a rehearsal: a job's commands, a service's workers, broker and client."""
