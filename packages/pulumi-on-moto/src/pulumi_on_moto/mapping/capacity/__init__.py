"""Groups, fleets, launch templates, and instance types by requirements."""
