"""An uplink with some settings changed."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from flmc.base.errors import InvalidSetting
from flmc.uplink.uplink import Uplink

AnyUplink = TypeVar("AnyUplink", bound=Uplink)


def replace(uplink: AnyUplink, **changes: object) -> AnyUplink:
    """Copy of an uplink with some settings changed, and all of them checked anew.

    Parameters
    ----------
    uplink
        The uplink to copy.
    **changes
        New values by the name of the setting, such as ``clip=20.0``.

    Returns
    -------
    Uplink
        An uplink of the same class.

    Raises
    ------
    InvalidSetting
        If there is no such setting, or a value is out of its bounds.

    Examples
    --------
    >>> flmc.replace(flmc.Digital(), snr_db=30).snr_db
    30
    """
    # Fields that cannot be set, as the ideal uplink's, are refused here, with the package's own
    # error.
    known = {f.name for f in dataclasses.fields(uplink) if f.init}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise InvalidSetting(
            f"{type(uplink).__name__} has no setting {unknown[0]!r}; it has"
            f" {', '.join(sorted(known)) or 'none'}"
        )
    return dataclasses.replace(uplink, **changes)  # type: ignore[arg-type]  # checked by the class
