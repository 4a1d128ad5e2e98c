"""The node agent: what a GPU instance does by itself, one subcommand and one systemd unit for each task."""
