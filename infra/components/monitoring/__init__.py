"""What people hear and see."""
