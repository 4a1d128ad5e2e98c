"""The work itself: a training run or a service's workers, their heartbeats, and the notice that ends them."""
