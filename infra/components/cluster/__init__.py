"""An EKS cluster created by the stack, and the objects in any cluster."""
