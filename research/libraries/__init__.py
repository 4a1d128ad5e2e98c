"""Benchmarks of the libraries: trainings that are killed, nodes that are lost, a queue."""
