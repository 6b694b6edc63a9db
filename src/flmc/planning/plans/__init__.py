"""The plan: a value, its JSON document, and the rows that people see of it."""

from flmc.planning.plans.plan_value import Plan

__all__ = ["Plan"]
