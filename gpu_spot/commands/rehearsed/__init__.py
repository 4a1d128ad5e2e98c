"""Options of the commands that run a rehearsal; `rehearsal.commands` implements them."""
