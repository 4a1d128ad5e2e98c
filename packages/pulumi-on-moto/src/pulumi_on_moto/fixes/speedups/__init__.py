"""Speed-ups of moto that change no response."""
