"""Benchmarks on Spot markets, recorded or drawn: policies, deadlines, warm pools, forecasts."""
