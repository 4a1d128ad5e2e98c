"""Fits of what the product ships: the deadline policy's table, the market, the spreads of forecasts."""
