"""The command ``spot-training``: supervises a training without a node agent, and looks into checkpoints."""
