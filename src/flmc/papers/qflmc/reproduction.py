"""`flmc reproduce --paper qflmc`: conduct the study, and write its report."""

from __future__ import annotations

from pathlib import Path

from flmc.base.errors import InvalidSetting
from flmc.papers.qflmc.reporting.report import write
from flmc.papers.qflmc.study import Stage, Study, conduct
from flmc.views.figures import new_figure


def reproduce(
    *, figure: str, experiments: int, seed: int, data: str, engine: str, out: Path, stage: Stage
) -> Study:
    """Measure the figures, judge the claims, and write tables, pictures and report into a
    directory.

    Parameters
    ----------
    figure
        2, 3, 4, beyond or all.
    experiments, seed, data, engine
        Data sets per point, and how they are drawn and simulated.
    out
        Where the report goes.
    stage
        Names a stage of the work and returns what reports its progress.
    """
    # Raises now if Matplotlib is missing, before anything is computed.
    new_figure(columns=1)
    study = conduct(figure, experiments, seed, stage, data=data, engine=engine)
    command = (
        f"flmc reproduce --figure {figure} --experiments {experiments} --seed {seed} --data {data}"
    )
    try:
        write(study, out, command)
    except OSError as error:
        raise InvalidSetting(f"cannot write to {str(out)!r}: {error.strerror}") from error
    return study
