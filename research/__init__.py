"""Studies of the product on recorded and drawn Spot markets, for its maintainers."""
