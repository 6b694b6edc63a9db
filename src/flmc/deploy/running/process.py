"""A role as a process, with signals that stop it."""

from __future__ import annotations

import asyncio

from flmc.deploy.running.loop import run_role
from flmc.deploy.running.role import Role
from flmc.deploy.running.stopping import stop_event
from flmc.wire.transport.transport import Transport


def run_process(role: Role, transport: Transport) -> None:
    """Run a role until it is finished, or SIGINT or SIGTERM asks it to stop.

    Parameters
    ----------
    role, transport
        The role, and what connects it.
    """
    asyncio.run(_run(role, transport))


async def _run(role: Role, transport: Transport) -> None:
    """Run a role, with signals that ask it to stop."""
    await run_role(role, transport, stop=stop_event())
