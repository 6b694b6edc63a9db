"""Files of the MQTT broker mosquitto: its configuration, and the access list of topics.

The access list comes from :data:`flmc.wire.topics.RIGHTS` and has a block for each identity, no
patterns: a pattern applies to every client of mosquitto, so one for devices would give rights
to the server as well.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator

from flmc.base.errors import InvalidSetting
from flmc.wire.encoding import MOST_BYTES
from flmc.wire.topics import RIGHTS, Rights, Topic, device_number

CONFIGURATION, ACCESS = "mosquitto.conf", "acl"
"""Names of the broker's files: mosquitto's configuration, and the list of who may write and read
which topics."""
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names by which a machine reaches itself; the broker's certificate has all of them."""
_HEADER = 2**16
"""Bytes allowed in a packet beside its payload, for the topic and the MQTT header."""
_MOST_MEMORY = 2**30
"""Largest memory that mosquitto may use, in bytes."""
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")

_CONFIGURATION = """\
# mosquitto 2.0; made by flmc deploy init. Start it in this folder (start.sh): names are relative.

# Who connects is who its certificate says, and nobody connects without one. Only certificates of
# this federation's own authority count.
{listener}
cafile ca.pem
certfile cert.pem
keyfile key.pem
crlfile crl.pem
tls_version tlsv1.2
require_certificate true
use_identity_as_username true
# A client's id is its identity, whatever it asks for: else a device that calls itself "air" would
# throw the air out. An identity has one connection at a time therefore.
use_username_as_clientid true
allow_anonymous false
acl_file acl

# Messages of a round are small, and each waits for the one before: send them at once.
set_tcp_nodelay true
# In a round the air gets a message of every device, and none may be lost.
max_inflight_messages {inflight}
max_queued_messages {queued}
max_packet_size {most_bytes}
# Retained messages stay until the broker ends, and a device may retain any number of them, on runs
# that it invents. Beyond this the broker throws out whoever sends more, and says who in its log:
# revoke that one, and start the broker again.
memory_limit {most_memory}

# Nothing is kept on disk: whoever published a retained message publishes it again when the broker
# comes back, which also works after a crash, and no uplink ever reaches a disk here.
persistence false

log_dest stderr
log_type error
log_type warning
log_type notice
log_type information
connection_messages true
{user}"""

_USER = """\

# init was run by root, who alone can read key.pem. Without this line mosquitto would become the
# user mosquitto when root starts it, and could not read it. The systemd unit has its own user.
user root
"""

_ACCESS = """\
# Who may write and read what; made by flmc deploy, from flmc.wire.topics.RIGHTS. Whatever is not
# here is denied, silently. revoke and renew write this file anew: do not edit it.
"""


def host_name(host: str) -> str:
    """The host name ``host`` unchanged, or an IP address in its standard form; raises
    ``InvalidSetting`` for any other text."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        labels = host.split(".")
        if (
            len(host) > 253
            or not all(_LABEL.fullmatch(label) for label in labels)
            or labels[-1].isdigit()  # a last part of digits only is a mistyped IP address
        ):
            raise InvalidSetting(
                "host must be a host's name or address, such as broker.example.org or 192.0.2.7,"
                f" without scheme and port; got {host!r}"
            ) from None
        return host


def broker_url(host: str, port: int) -> str:
    """Address ``mqtts://HOST:PORT`` by which the roles of a federation reach the broker."""
    return f"mqtts://[{host}]:{port}" if ":" in host else f"mqtts://{host}:{port}"


def configuration(host: str, port: int, num_devices: int, *, by_root: bool) -> str:
    """Text of ``mosquitto.conf``. The broker listens on loopback only if ``host`` is a loopback
    name, and on all addresses otherwise; ``by_root`` says that root owns its files, so that a
    broker started by root must stay root to read them."""
    if host in LOOPBACK:
        listener = f"listener {port} {'::1' if host == '::1' else '127.0.0.1'}"
    else:
        listener = f"listener {port}"
    return _CONFIGURATION.format(
        listener=listener,
        inflight=max(100, 2 * num_devices),
        queued=max(10_000, 10 * num_devices),
        most_bytes=MOST_BYTES + _HEADER,
        most_memory=_MOST_MEMORY,
        user=_USER if by_root else "",
    )


def rights_of(identity: str) -> Rights:
    """Topics that an identity (such as ``server`` or ``device-3``) may write and read, without
    their beginning ``flmc/1/<run>/``; raises ``InvalidSetting`` for an unknown identity."""
    role = "device" if device_number(identity) is not None else identity
    if role not in RIGHTS or identity == "device":
        raise InvalidSetting(f"{identity!r} has no rights: it is no identity of a federation")
    write, read = (tuple(end.replace("%u", identity) for end in ends) for ends in RIGHTS[role])
    return Rights(write, read)


def access_list(identities: Iterable[str]) -> str:
    """Text of mosquitto's access list with a block for each identity; an identity that is not
    listed may write and read nothing."""
    return _ACCESS + "".join(f"{line}\n" for each in identities for line in _block(each))


def _block(identity: str) -> Iterator[str]:
    """Lines of the access list for one identity, after an empty line."""
    yield ""
    yield f"user {identity}"
    for word, ends in zip(("write", "read"), rights_of(identity), strict=True):
        for end in ends:
            what, _, who = end.partition("/")
            yield f"topic {word} {Topic('+', what, who or None)}"
