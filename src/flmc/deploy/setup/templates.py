"""Texts of the files in the folders of a federation: configurations, README, start scripts,
systemd units."""

from __future__ import annotations

import shlex

FEDERATION = """\
# What the air and the server must agree on: the same file in both folders.

# Name of the run, a part of every topic; a name is used once.
run = "first"
# The plan, in both folders: flmc plan --devices K --public-smoothness L --public-convexity M
# --out plan.json; without public bounds it looks at data, and devices refuse it.
plan = "plan.json"
# Devices whose answers a round needs, at least; with fewer the round repeats.
quorum = {quorum}
# Milliseconds after which a device answers, always: how long a gradient takes must not show.
slot_ms = 50
# Milliseconds for which the air waits for answers.
deadline_ms = 2000
# Public names of the entries of theta, under which the server shows them: those that the model of
# the devices has, in its order (in Python model.layout.free_entries()).
# names = ["intercept", "slope"]
"""

_TLS = """\

# Who this is, to the broker. Names are relative to this file.
[tls]
ca = "ca.pem"
cert = "cert.pem"
key = "key.pem"
"""

DEVICE = (
    """\
# Device {device} of a federation.
id = {device}

# Its own examples, a table with named columns; they never leave this machine.
data = "data.csv"
# Column that is to be predicted, and the model whose gradients the device computes.
target = "y"
model = "linear"

# Public key of the air: what the device answers is sealed to it.
air_key = "air.pub"
# What the device has answered, and what that cost. Back it up with nothing older than itself: a
# device without its journal, or with an old copy of it, joins no run that has begun.
journal = "journal"

# What the device allows for its data set, over all runs together; it refuses what exceeds this.
[budget]
epsilon = 10.0
delta = 1e-5
runs = 1
"""
    + _TLS
)

AIR = (
    """\
# The air: it adds up what devices send, adds the channel's noise, and tells the server the sum.
# It must not be run by whoever runs the server.
federation = "federation.toml"

# Secret key, to which devices seal their answers; its other half is air.pub.
air_key = "air.key"
# What was published in each round, so that a round has one answer even after a restart.
journal = "journal"
"""
    + _TLS
)

SERVER = (
    """\
# The server: it sees sums with noise, and moves theta.
federation = "federation.toml"

# Record and ledger of the run, from which it resumes.
record = "journal/record"
# Round 1 waits so many seconds for all devices to join; then a quorum is enough.
patience_seconds = 60.0
# Where the chain starts, if the plan says so: a normal draw.
prior_mean = 0.0
prior_sd = 1.0
# Of a model other than "linear" the server knows no prior, and has no answer, unless it is stated
# here: numbers, or lists with one for each entry.
# [prior]
# mean = 0.0
# sd = 1.0
"""
    + _TLS
)

OBSERVER = (
    """\
# Whoever watches: it reads the status of a run, and can write nothing.
"""
    + _TLS
)

README = """\
A federation of {num_devices} devices, made by flmc deploy init. The broker is {url}.

Each folder is for one role, and is all that it needs on its machine: copy it there with its
permissions (cp -a, rsync -a), start it with start.sh or the systemd unit in it, and remove it here.
The units expect the folders in {installed}; each says in its head how to install it.

broker     mosquitto's configuration (mosquitto.conf, acl), its certificate, revoked certificates
air        adds up what devices send; must not be run by whoever runs the server
server     runs the Langevin update
observer   for flmc status; can write nothing
monitor    for whatever watches all the time, as flmc studio does; can write nothing. Each of the
           two has one connection at a time
device-N   a device: put its data.csv there, and set its budget in config.toml
authority  signs certificates. Whoever has ca.key can be anyone: keep it off the other machines

Before the first run: flmc plan --devices K --public-smoothness L --public-convexity M --out
plan.json, copied into air and server (without public bounds devices refuse it); the same
federation.toml in both.

Later, here:
flmc deploy renew DIR ID     a new certificate, before the old one expires (certificates of roles
                             last {days} days; authority/index.json says until when)
flmc deploy revoke DIR ID    shut out a device or another role for good
"""

SCRIPT = "start.sh"
"""File name, in the folder of a role or the broker, of the executable script that starts it."""

_START = """\
#!/bin/sh
# Starts the {title}; made by flmc deploy init.
set -eu
cd "$(dirname "$0")"
{command}
"""

_BROKER = """\
# A connection is an open file; a lower limit than this would lock devices out.
limit=$(ulimit -n)
[ "$limit" = unlimited ] || [ "$limit" -ge {files} ] || ulimit -n {files} 2> /dev/null ||
    echo "start.sh: only $limit files can be open, {files} would be enough for all devices" >&2
# Debian has mosquitto where only root looks.
PATH="$PATH:/usr/sbin:/usr/local/sbin"
exec mosquitto -c mosquitto.conf"""

_UNIT = """\
# The {title}; made by flmc deploy init. To install it:
#   useradd --system --no-create-home --shell /usr/sbin/nologin {user}
#   cp -a {folder} {installed}/ && chown -R {user}: {installed}/{folder}
#   cp {installed}/{folder}/{unit} /etc/systemd/system/ && systemctl enable --now {unit}

[Unit]
Description=flmc: {title}
Wants=network-online.target
After=network-online.target{after}
# It is started again as often as it takes: the others wait for it.
StartLimitIntervalSec=0

[Service]
User={user}
WorkingDirectory={installed}/{folder}
Environment=PATH={installed}/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin
ExecStart={installed}/{folder}/start.sh
{reload}Restart=on-failure
RestartSec=2
{exits}
# It reads its folder, writes its journal, speaks to the network, and nothing else.
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet={capabilities}
AmbientCapabilities={capabilities}
ProtectSystem=strict
{writes}ProtectHome=yes
ProtectProc=invisible
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
PrivateDevices=yes
PrivateTmp=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def unit_name(folder: str) -> str:
    """File name of the systemd unit that starts the role of a folder, such as
    ``flmc-air.service``."""
    return f"flmc-{folder}.service"


def title_of(folder: str) -> str:
    """Description of a folder's role, such as ``device 3 of a federation``, for comments in the
    folder's files."""
    return folder.replace("device-", "device ") + (" of a federation" if folder != "broker" else "")


def broker_script(num_devices: int) -> str:
    """Text of the shell script that starts the broker, with a limit of open files that suits the
    number of devices."""
    command = _BROKER.format(files=open_files(num_devices))
    return _START.format(title=title_of("broker"), command=command)


def open_files(num_devices: int) -> int:
    """Number of files, connections included, that the broker of ``num_devices`` devices must be
    able to hold open."""
    # Two connections are counted for each device, because a broken one may linger beside its
    # successor; the rest is for the broker's own files.
    return 256 + 2 * num_devices


def script(folder: str, url: str) -> str:
    """Text of the shell script that starts the role in ``folder`` (``air``, ``server`` or a device
    such as ``device-3``) with the broker's address ``url``."""
    words = {"air": ["air"], "server": ["serve"]}.get(folder)
    if words is None:
        words = ["device", "--id", folder.removeprefix("device-"), "--data", "data.csv"]
    words += ["--config", "config.toml", "--broker", url]
    return _START.format(title=title_of(folder), command=f'exec flmc {shlex.join(words)} "$@"')


def unit(folder: str, installed: str, *, port: int, num_devices: int) -> str:
    """Text of the systemd unit that starts a role or the broker, for folders that were copied into
    the directory ``installed``."""
    broker = folder == "broker"
    return _UNIT.format(
        title=title_of(folder),
        folder=folder,
        unit=unit_name(folder),
        installed=installed,
        # Each role has a user of its own, because air and server must not read each other's files.
        user=f"flmc-{folder}",
        after="" if broker else f" {unit_name('broker')}",
        # On the signal SIGHUP mosquitto reads its access list, certificate and revocation list
        # again.
        reload="ExecReload=/bin/kill -HUP $MAINPID\n" if broker else "",
        # Exit status 2 means bad input, which restarting does not mend: systemd must not restart
        # then.
        exits=f"LimitNOFILE={max(1024, open_files(num_devices))}\n"
        if broker
        else "RestartPreventExitStatus=2\n",
        # Only with this capability may mosquitto bind a port below 1024.
        capabilities="CAP_NET_BIND_SERVICE" if broker and port < 1024 else "",
        writes="" if broker else f"ReadWritePaths={installed}/{folder}/journal\n",
    )
