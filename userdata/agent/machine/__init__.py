"""The operating system interface of the agent: commands, files, time, logs, errors."""
