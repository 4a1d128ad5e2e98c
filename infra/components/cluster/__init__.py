"""An EKS cluster: what the stack declares in one, and one of its own."""
