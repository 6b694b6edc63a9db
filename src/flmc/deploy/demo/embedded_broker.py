"""A broker in Python (amqtt) for a machine without mosquitto: no TLS, no access rights.

It is for demonstrations. A federation is protected by certificates and rights, for which it
needs mosquitto with the files that ``flmc deploy init`` writes.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
from typing import Any

from flmc.base.errors import MissingExtra
from flmc.deploy.loop import stop_event


def configuration(port: int) -> dict[str, Any]:
    """Configuration of the amqtt broker in its own format: it listens on a loopback port, and
    admits everybody."""
    return {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }


def load_broker() -> Any:
    """The broker class of amqtt; raises ``MissingExtra`` if the extra ``broker`` is not
    installed."""
    try:
        return importlib.import_module("amqtt.broker").Broker
    except ImportError as error:
        raise MissingExtra(
            "the embedded broker needs the extra broker: pip install 'flmc[broker]'; or install"
            " mosquitto"
        ) from error


async def serve(port: int) -> None:
    """Run the broker on a loopback port until SIGINT or SIGTERM."""
    stop = stop_event()
    broker = load_broker()(configuration(port), asyncio.get_running_loop())
    await broker.start()
    await stop.wait()
    await broker.shutdown()


def main() -> None:
    """Run the broker on the loopback port that the command line names, until a signal ends it."""
    parser = argparse.ArgumentParser(description="a broker on loopback")
    parser.add_argument("--port", type=int, required=True)
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(serve(parser.parse_args().port))


if __name__ == "__main__":
    main()
