"""Examples of property tests are drawn alike in every run and take the time they take on a busy machine."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
