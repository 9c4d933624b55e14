"""How properties are drawn: the same examples in each run, and no time limit on a busy machine."""

from hypothesis import HealthCheck, settings

# Here and not in a fixture: what a test's own `settings` leave out is taken when it is decorated.
settings.register_profile(
    "unit", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.load_profile("unit")
