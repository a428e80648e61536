"""What every test needs: examples that may take their time, since the first call of a kernel compiles it."""

from hypothesis import settings

settings.register_profile("sparklog", deadline=None)
settings.load_profile("sparklog")
