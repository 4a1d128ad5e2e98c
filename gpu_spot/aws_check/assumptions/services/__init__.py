"""Services beside EC2 and its groups: brokers, clusters, experiments, functions, events."""
