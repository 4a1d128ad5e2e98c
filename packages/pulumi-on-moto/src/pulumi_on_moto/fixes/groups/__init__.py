"""Auto Scaling groups: their members, and fixes of moto's Auto Scaling."""
