"""What moto knows of instances and of spot."""
