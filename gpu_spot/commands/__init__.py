"""The subcommands of `gpu-spot`, one module each."""
