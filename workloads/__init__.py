"""Training workloads: transformers, parallelism, schedules, memory, and the torch model."""
