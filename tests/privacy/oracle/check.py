"""``make accounting-check``: every accountant against the oracle, as a table.

All truths are computed anew. Options: ``--stored`` takes those of ``battery.json`` instead;
``--json FILE`` writes the verdicts."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from privacy.oracle.asking import Answer, answers
from privacy.oracle.battery import Case, Known, know, stored
from privacy.oracle.tail_gains import Tail
from privacy.oracle.truth import Truth
from privacy.oracle.verdicts import Verdict, table


def verdict_of(case: Case, truth: Truth, answer: Answer) -> Verdict:
    """What an answer is worth. A gain above the true one is no violation where the criterion holds
    again there, which need not be monotone at high signal-to-noise ratio."""
    known, value = truth.epsilon, answer.value
    if case.solves_gain and known * (1 + 1e-6) < value < math.inf:
        asked = Tail(case.accountant, case.reach, case.number, case.epsilon, case.num_devices)
        probability, error = asked.probability(value)
        if probability <= case.delta * (1 + 1e-6 + error):
            known = value
    return Verdict(
        case.accountant,
        describe(case),
        known,
        truth.error,
        value,
        answer.cpu,
        truth.converged,
        case.solves_gain,
        failure=answer.failure,
        peak=answer.peak,
    )


def describe(case: Case) -> str:
    """A case in words."""
    loud = max(gain for gain, _ in case.gains)
    of = f"{case.number} entries, {len(case.gains)} gains up to {loud:.3g}, delta {case.delta:g}"
    if case.accountant == "asymmetric":
        return f"{case.high:g} and {case.low:g}, {of}"
    if case.accountant == "analog":
        return f"sensitivity {case.shift:g}, {of}"
    link = f"{case.link} {case.reach:g}"
    if case.accountant == "example":
        return f"{link} moved by {case.shift:g}, {of}"
    if case.solves_gain:
        return (
            f"{link}, {case.number} entries, epsilon {case.epsilon:g}, delta {case.delta:g},"
            f" {case.num_devices} devices"
        )
    return f"{link}, {of}"


def battery_verdicts(known: list[Known]) -> list[Verdict]:
    """Answers to all cases against given truths."""
    asked = answers([each.case for each in known])
    return [verdict_of(k.case, k.truth, answer) for k, answer in zip(known, asked, strict=True)]


def main() -> int:
    """Print the tables; the exit code is 1 if there is a violation or a loose answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", action="store_true", help="take the truths of battery.json")
    parser.add_argument("--json", type=Path, help="write the verdicts there")
    asked = parser.parse_args()
    known = stored()
    say = sys.stdout.write
    if not asked.stored:
        anew = [know(each.case) for each in known]
        moved = [abs(t.epsilon / k.truth.epsilon - 1) for t, k in zip(anew, known, strict=True)]
        say(f"truths computed anew: {len(anew)}, at most {max(moved):.1e} from the stored ones\n\n")
        known = [Known(k.case, truth, k.fixed) for k, truth in zip(known, anew, strict=True)]
    from privacy.oracle.plans import plan_verdicts, varied
    from privacy.oracle.relations import relation_verdicts
    from privacy.oracle.shares import share_verdicts

    verdicts = battery_verdicts(known) + plan_verdicts(settings=varied()) + share_verdicts()
    verdicts += relation_verdicts()
    say(table(verdicts) + "\n\n")
    say("open: the oracle is not converged; wrong: below the truth (a gain: above it); loose: more")
    say(" than 2 % and 0.001 above it (a gain: 2 % below).\n\n")
    gaps = [100 * (k.truth.epsilon / k.fixed - 1) for k in known if k.fixed > 0]
    say(f"worst place of each epsilon against the best fixed neighbours, {len(gaps)} examples:")
    say(f" median {np.median(gaps):.2f} %, largest {max(gaps):.1f} % (no bar)\n")
    for reason in {v.structural for v in verdicts if v.structural}:
        slack = [100 * v.slack for v in verdicts if v.structural == reason]
        say(f"looser by {min(slack):.1f} to {max(slack):.1f} % because of {reason}\n")
    bad = [v for v in verdicts if v.violates or (v.loose and not v.structural) or not v.converged]
    for verdict in sorted(bad, key=lambda v: (not v.violates, -v.slack)):
        say(f"{'WRONG' if verdict.violates else 'loose'} {verdict}\n")
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps([asdict(v) for v in verdicts], indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
