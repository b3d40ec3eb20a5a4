"""Products executed in torch with the errors of a photonic core."""
