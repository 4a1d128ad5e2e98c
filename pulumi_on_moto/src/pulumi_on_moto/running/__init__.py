"""What goes on after the deployment: simulated time, events over the deployed rules, deployed functions."""
