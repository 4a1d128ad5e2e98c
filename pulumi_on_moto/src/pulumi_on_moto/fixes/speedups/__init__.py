"""What makes moto faster and changes no answer."""
