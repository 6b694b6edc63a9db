"""`flmc reproduce --paper qflmc`: conduct the study, and write its report."""

from __future__ import annotations

from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.papers.qflmc.reporting.report import write
from flmc.papers.qflmc.study import Study, conduct
from flmc.papers.request import StudyRequest, refuse_given
from flmc.views.figures import new_figure


def reproduce(**asked: Any) -> Study:
    """Measure the figures, judge the claims, and write tables, pictures and report into a
    directory.

    Parameters
    ----------
    **asked
        What is asked, by the names of :class:`~flmc.papers.request.StudyRequest`.
    """
    request = StudyRequest(**asked)
    refuse_given(request, "qflmc", data_file="its data sets are synthetic")
    # Raises now if Matplotlib is missing, before anything is computed.
    new_figure(columns=1)
    study = conduct(request)
    try:
        command = request.command(
            "figure", experiments=study.experiments, seed=study.seed, data=request.data
        )
        write(study, request.out, command)
    except OSError as error:
        raise InvalidSetting(f"cannot write to {str(request.out)!r}: {error.strerror}") from error
    return study
