"""The node agent of a GPU instance: one subcommand and one systemd unit per task."""
