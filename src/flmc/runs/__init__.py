"""Runs and what they leave on disk: records, ledgers, resuming, comparisons and sweeps.

It offers ``execution.run`` and ``execution.resume``, ``records.load``, ``ledger_cost.spent``,
``comparison.compare``, ``two_stage_run.run_two_stages`` and ``sweeps.table.sweep``, with the values
that they return. It is the only package below the front ends that writes files and takes locks."""
