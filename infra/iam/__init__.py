"""Every permission that the stack grants."""
