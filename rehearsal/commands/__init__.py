"""What the commands that rehearse carry out; their options stand in `gpu_spot.commands`."""
