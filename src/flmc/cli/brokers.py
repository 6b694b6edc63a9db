"""Options of commands that listen to a broker, and the transport that they mean."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from flmc.base.errors import MissingExtra
from flmc.wire.transport.mqtt import Credentials, Mqtt

Broker = Annotated[
    str, typer.Option("--broker", metavar="URL", help="mqtts://HOST:PORT, or mqtt://HOST:PORT")
]
Tls = Annotated[
    Path | None,
    typer.Option("--tls", metavar="DIR", help="directory with ca.pem, cert.pem and key.pem"),
]


def transport_to(broker: str, tls: Path | None) -> Mqtt:
    """What connects to a broker.

    Parameters
    ----------
    broker
        Its address.
    tls
        Directory with ca.pem, cert.pem and key.pem; None: without certificates.

    Raises
    ------
    InvalidSetting
        If address or certificates cannot be used.
    MissingExtra
        If the extra ``mqtt`` is not installed.
    """
    if importlib.util.find_spec("aiomqtt") is None:
        raise MissingExtra("a broker needs the extra mqtt: pip install 'flmc[mqtt]'")
    files = None
    if tls is not None:
        files = Credentials(tls / "ca.pem", tls / "cert.pem", tls / "key.pem")
    return Mqtt(broker, files)
