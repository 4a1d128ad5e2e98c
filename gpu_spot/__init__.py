"""The command `gpu-spot`: a rehearsal of a stack on moto, and replays of spot markets."""
