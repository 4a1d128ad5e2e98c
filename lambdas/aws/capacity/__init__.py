"""The controller's AWS adapters: observation, capacity changes, Auto Scaling groups and Spot Fleets."""
