"""The device, the process of one owner of data: its local model, its journal, its privacy budget,
and the symbols that it sends in every round.

A device trusts the air with its symbols, but checks every plan and every round against its own
budget and rules.
"""
