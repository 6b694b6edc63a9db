"""`flmc reproduce --paper wflmc`: conduct the study, and write its report."""

from __future__ import annotations

from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.papers.request import StudyRequest, refuse_given
from flmc.papers.wflmc.report import write
from flmc.papers.wflmc.results import Study
from flmc.papers.wflmc.study import conduct
from flmc.views.figures import new_figure


def reproduce(**asked: Any) -> Study:
    """Measure the curves, and write tables, pictures and report into a directory.

    Parameters
    ----------
    **asked
        What is asked, by the names of :class:`~flmc.papers.request.StudyRequest`.
    """
    request = StudyRequest(**asked)
    refuse_given(
        request,
        "wflmc",
        figure="it has one figure, which is drawn with all its curves",
        data="its one data set is read with --data-file, or drawn as examples",
    )
    # Raises now if Matplotlib is missing, before anything is computed.
    new_figure(columns=1)
    study = conduct(request)
    try:
        command = request.command(paper="wflmc", experiments=study.experiments, seed=study.seed)
        write(study, request.out, command)
    except OSError as error:
        raise InvalidSetting(f"cannot write to {str(request.out)!r}: {error.strerror}") from error
    return study
