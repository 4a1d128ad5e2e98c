"""What the spot market offers, before anybody holds anything: traces, the fitted model, their pools."""
