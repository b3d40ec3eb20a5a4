"""One training step as a graph of operators and collectives, and the memory that it needs."""
