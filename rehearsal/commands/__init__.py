"""Implementation of the commands that rehearse; their options are in `gpu_spot.commands`."""
