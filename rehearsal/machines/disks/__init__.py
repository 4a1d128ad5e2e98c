"""EBS of a rehearsal: volumes, snapshots, and what they copy."""
