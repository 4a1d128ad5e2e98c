"""The command ``gpu-spot``: what operators run on a real account."""
