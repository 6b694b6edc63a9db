"""The plan of a run: its class, its JSON document, and the rows in which it is shown to people."""

from flmc.planning.plans.plan_value import Plan

__all__ = ["Plan"]
