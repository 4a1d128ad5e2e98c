"""The archives of the Lambda functions and of the node agent, each from an explicit list of files."""
