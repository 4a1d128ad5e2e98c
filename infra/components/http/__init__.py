"""Addresses of HTTP services: the load balancer, the proxies, the security groups, the alarms."""
