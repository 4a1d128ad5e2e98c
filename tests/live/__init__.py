"""The sample program, deployed once for this folder: a package, whose end is that of its fixtures."""
