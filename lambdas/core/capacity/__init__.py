"""The controller's decisions: a policy's plan made safe, and the group's state that it is based on."""
