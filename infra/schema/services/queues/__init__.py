"""What a stack file can say of a service's queue, a module for each kind; ``kinds`` lists them."""
