"""The program's building blocks, a module each. None of them reads configuration."""
