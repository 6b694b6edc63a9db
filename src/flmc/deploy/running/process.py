"""A role as a process: signals that stop it, and the run that a device looks for."""

from __future__ import annotations

import asyncio

from flmc.base.errors import InvalidSetting
from flmc.deploy.running.loop import run_role
from flmc.deploy.running.role import Role
from flmc.deploy.running.stopping import stop_event
from flmc.wire.topics import END, PLAN, Topic
from flmc.wire.transport.transport import Disconnected, Transport

_SETTLE = 0.5
"""Seconds for which further runs are looked for, once there is one."""


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


def find_run(identity: str, transport: Transport) -> str:
    """The name of the run that there is; it is waited for.

    Parameters
    ----------
    identity, transport
        Who looks, and what connects it.

    Raises
    ------
    InvalidSetting
        If there are several runs.
    """
    return asyncio.run(_find_run(identity, transport))


async def _find_run(identity: str, transport: Transport) -> str:
    """Read plans of all runs until there is one that has not ended."""
    patterns = [str(Topic("+", what)) for what in (PLAN, END)]
    while True:
        plans: set[str] = set()
        ended: set[str] = set()

        async def look(plans: set[str] = plans, ended: set[str] = ended) -> None:
            async with transport.connect(identity, patterns, None) as connection:
                async for message in connection.messages():
                    topic = Topic.parse(message.topic)
                    if topic is None or topic.who is not None or not message.payload:
                        continue
                    (plans if topic.what == PLAN else ended).add(topic.run)

        task = asyncio.create_task(look())
        try:
            while not task.done():
                await asyncio.sleep(_SETTLE)
                going = sorted(plans - ended)
                if len(going) > 1:
                    raise InvalidSetting(
                        f"there are several runs, {', '.join(going[:5])}: choose one with --run"
                    )
                if going:
                    return going[0]
        finally:
            task.cancel()
            results = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(results[0], Disconnected):
            raise results[0] if isinstance(results[0], BaseException) else RuntimeError
