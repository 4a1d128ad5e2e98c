"""Data of a finished rehearsal, independent of simulation and presentation."""
