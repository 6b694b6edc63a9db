"""What accountants refuse, in words."""

from __future__ import annotations

from flmc.base.errors import InvalidSetting


def nothing_allowed(epsilon: float, delta: float) -> InvalidSetting:
    """Error for a budget that not even the smallest gain is known to keep."""
    return InvalidSetting(
        f"no gain is known to stay within epsilon {epsilon:g} at delta {delta:g}: such a small"
        " delta is lost in the rounding of the accountant; use a larger delta (1e-12 or more) or a"
        " larger epsilon"
    )


def refuse_tails(what: str, criterion: str, why: str) -> None:
    """Refuse every criterion but ``tight``, with words for the message."""
    if criterion != "tight":
        raise InvalidSetting(f"{what} needs privacy 'tight', got {criterion!r}: {why}")
