"""Forecasts of the cost and availability of a stack file, and advice on better settings."""
