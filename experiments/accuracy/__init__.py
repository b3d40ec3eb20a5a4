"""Studies of accuracy: what noise costs a transformer, predicted, executed, trained, by width and by photons."""
