"""For all tests: a machine that is busy with other work makes no property false."""

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
