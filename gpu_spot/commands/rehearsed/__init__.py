"""The commands that rehearse on this machine: their options. What they carry out stands in `rehearsal`."""
