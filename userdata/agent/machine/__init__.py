"""The operating system below the agent: commands, files, time, logs, errors."""
