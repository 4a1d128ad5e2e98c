"""The bill of a shared host by tenant: ``bill`` divides it, ``reader`` reads use and cost from CloudWatch."""
