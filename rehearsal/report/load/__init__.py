"""A load on a service and what staffing for it came to: as a picture, in words, in the summary."""
