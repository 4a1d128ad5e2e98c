"""IAM roles of instances, functions, on-premises hosts and continuous integration."""
