"""Models trained in torch through a core's numerics: the small GPT and networks that read digits."""
