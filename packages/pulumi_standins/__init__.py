"""Plugins of the real engine without a cloud behind them, in place of ``aws`` and ``kubernetes``."""
