"""The answers of commands (``--json``) as pydantic models, and their JSON Schemas: ``ANSWERS`` has
them by name. Only `flmc schema` and the documentation import this package."""

from flmc.cli.schemas.catalogue import ANSWERS, PARTS, AnswerSchema

__all__ = ["ANSWERS", "PARTS", "AnswerSchema"]
