"""Start scripts and systemd units: for each role, one of both in its folder."""

from __future__ import annotations

import shlex

SCRIPT = "start.sh"
"""Name of a start script; it is executable."""

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
    """Name of the systemd unit of a role.

    Parameters
    ----------
    folder
        Name of the role's folder, ``air`` for example.
    """
    return f"flmc-{folder}.service"


def title_of(folder: str) -> str:
    """A role in words.

    Parameters
    ----------
    folder
        Name of the role's folder.
    """
    return folder.replace("device-", "device ") + (" of a federation" if folder != "broker" else "")


def broker_script(num_devices: int) -> str:
    """Start script of the broker.

    Parameters
    ----------
    num_devices
        Devices that are to be connected at the same time.
    """
    command = _BROKER.format(files=open_files(num_devices))
    return _START.format(title=title_of("broker"), command=command)


def open_files(num_devices: int) -> int:
    """Files that a broker must be able to open: two connections of each device, while one of them
    is being given up, and some of its own.

    Parameters
    ----------
    num_devices
        Devices.
    """
    return 256 + 2 * num_devices


def script(folder: str, url: str) -> str:
    """Start script of a role that flmc runs.

    Parameters
    ----------
    folder
        Name of its folder: ``air``, ``server`` or a device's.
    url
        Address of the broker.
    """
    words = {"air": ["air"], "server": ["serve"]}.get(folder)
    if words is None:
        words = ["device", "--id", folder.removeprefix("device-"), "--data", "data.csv"]
    words += ["--config", "config.toml", "--broker", url]
    return _START.format(title=title_of(folder), command=f'exec flmc {shlex.join(words)} "$@"')


def unit(folder: str, installed: str, *, port: int, num_devices: int) -> str:
    """systemd unit of a role.

    Parameters
    ----------
    folder
        Name of its folder.
    installed
        Directory into which folders are copied.
    port
        Where the broker listens; below 1024 it needs a capability.
    num_devices
        Devices, each of which is an open file of the broker.
    """
    broker = folder == "broker"
    return _UNIT.format(
        title=title_of(folder),
        folder=folder,
        unit=unit_name(folder),
        installed=installed,
        # A user for each role: air and server must not read each other's files.
        user=f"flmc-{folder}",
        after="" if broker else f" {unit_name('broker')}",
        # Access list, certificate and revocations are read again by a broker that gets SIGHUP.
        reload="ExecReload=/bin/kill -HUP $MAINPID\n" if broker else "",
        # Bad input stays bad input, however often it is tried.
        exits=f"LimitNOFILE={max(1024, open_files(num_devices))}\n"
        if broker
        else "RestartPreventExitStatus=2\n",
        capabilities="CAP_NET_BIND_SERVICE" if broker and port < 1024 else "",
        writes="" if broker else f"ReadWritePaths={installed}/{folder}/journal\n",
    )
