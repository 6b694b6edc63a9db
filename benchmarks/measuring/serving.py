"""The child's side of a case: prepare a job, then do it once for every line on standard input.

Every answer is a line of JSON. Whatever the job prints goes to standard error instead."""

from __future__ import annotations

import json
import os
import sys

from measuring.job import Absent
from measuring.timing import cpu_seconds, peak_megabytes

_SHORT, _MOST_CALLS = 0.03, 50
"""CPU seconds below which the next turn is several calls, and how many at most; their mean
counts."""


def serve() -> None:
    """Serve turns of the job that the arguments name, until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        # Imported here, so that what fails to import is an answer too.
        from jobs import JOBS

        job = JOBS[sys.argv[1]](**json.loads(sys.argv[2]))
    except Absent as reason:
        answers.write(json.dumps({"absent": str(reason)}) + "\n")
        return
    answers.write(json.dumps({"ready": True}) + "\n")
    calls = 1
    for _ in sys.stdin:
        seconds = 0.0
        for _ in range(calls):
            job.before()
            began = cpu_seconds()
            job.turn()
            seconds += (cpu_seconds() - began) / calls
        calls = max(1, min(_MOST_CALLS, round(_SHORT / seconds)))
        peak = job.facts.get("peak_megabytes", peak_megabytes())
        answer = {"seconds": seconds, "peak_megabytes": peak, "facts": job.facts}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    serve()
