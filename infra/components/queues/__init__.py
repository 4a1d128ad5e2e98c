"""What services' workers read from, a room for each kind of queue; ``kinds`` lists them."""
