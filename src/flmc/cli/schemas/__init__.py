"""JSON Schemas of what commands print with ``--json``: ``ANSWERS`` has them by name."""

from flmc.cli.schemas.answers import ANSWERS, PARTS, Answer

__all__ = ["ANSWERS", "PARTS", "Answer"]
