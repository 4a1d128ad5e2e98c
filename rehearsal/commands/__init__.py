"""The commands ``demo`` and ``deploy``, which entry points of `gpu_spot.commands` add to ``gpu-spot``."""
