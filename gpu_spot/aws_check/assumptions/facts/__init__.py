"""Facts that tables of this repository repeat: instance types, prices, quotas, names."""
