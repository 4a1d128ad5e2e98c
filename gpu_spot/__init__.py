"""The command ``gpu-spot``, with which operators check, forecast, observe and control their stacks."""
