"""Studies, one file each; what they cannot use they refuse with one sentence, a `HeliographError`."""
