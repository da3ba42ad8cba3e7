"""Durations in words."""


def spell_seconds(seconds: float) -> str:
    """A duration for people.

    Example:
        >>> spell_seconds(42), spell_seconds(600), spell_seconds(9000), spell_seconds(400_000)
        ('42 s', '10 min', '2.5 h', '4.6 days')
    """
    for size, unit in ((86_400, "days"), (3600, "h")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
