"""Groups, fleets and launch templates, and the instance types that requirements stand for."""
