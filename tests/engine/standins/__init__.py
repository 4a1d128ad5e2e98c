"""Plugins of the real engine without a cloud behind them, in place of ``aws`` and ``kubernetes``.

What they are asked and what they answer is the provider protocol. They check inputs, give ids, keep a list of
what exists, and fail or report drift where a test says so.
"""
