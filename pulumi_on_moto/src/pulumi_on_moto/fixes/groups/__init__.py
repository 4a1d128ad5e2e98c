"""Auto Scaling groups: who belongs to them, and what moto gets wrong about them."""
