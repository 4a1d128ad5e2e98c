"""The health checker on AWS."""
