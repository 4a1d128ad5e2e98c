"""Where moto is not AWS: each put right while a sandbox is open."""
