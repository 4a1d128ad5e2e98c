"""The subcommands of `gpu-spot`, a module each."""
