"""What the account is and may, whatever the stack declares."""
