"""Training jobs, watched and steered: what was seen of one, what that means, what people may do with it."""
