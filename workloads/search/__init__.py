"""Memory and costs of many plans at once, as arrays."""
