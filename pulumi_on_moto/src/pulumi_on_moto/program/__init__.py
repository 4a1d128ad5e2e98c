"""The engine's part: a program is run, what it registers is created, what stands is shown and compared."""
