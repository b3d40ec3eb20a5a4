"""Studies of accuracy: what noise costs a transformer, predicted, trained, by width and by photons."""
