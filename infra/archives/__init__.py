"""What is shipped: the functions' archive and the node agent's, each from explicit keys."""
