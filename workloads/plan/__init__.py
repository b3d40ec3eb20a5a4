"""Plans of parallel training: what is split over which axis, and the rules that plans keep."""
