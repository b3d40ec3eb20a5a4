"""Published systems by their own constants and rules, each in a module of its own."""
