"""The controller on AWS: observe, act, one capacity service for groups and one for fleets."""
