"""The helper functions: handlers, adapters of AWS, and the pure decisions behind them."""
