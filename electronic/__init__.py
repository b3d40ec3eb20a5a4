"""The electronic baseline: GPUs, vector units and packet fabrics."""
