"""Commands about a stack that is deployed: who it is, what it does, and what people do to it."""
