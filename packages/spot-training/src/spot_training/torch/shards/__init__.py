"""State that is divided among the ranks: FSDP2, tensor parallelism, HSDP, ZeRO. Each rank saves its part."""
