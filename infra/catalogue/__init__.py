"""Facts of AWS, dated: accelerators, instance sizes, prices, CPU and broker types, shared hosts."""
