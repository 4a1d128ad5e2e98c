"""Reference pages and the editor schema of the stack file, generated from ``infra/schema/``."""
