"""How property tests run everywhere: without deadlines, since a busy machine's seconds say nothing about the code."""

from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.register_profile("full", parent=settings.get_profile("house"), max_examples=1000)
settings.load_profile("house")
