"""Texts of the files that an operator reads and edits: configurations, and what is where."""

from __future__ import annotations

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
