"""The rehearsed cloud: a deployment brought to life, in which the market gives and takes instances."""
