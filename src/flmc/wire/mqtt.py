"""Transport of messages over MQTT 3.1.1 with aiomqtt: every message is delivered at least once (QoS
1), the broker keeps no session of a client, and TCP packets are sent at once."""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.wire.encoding import MOST_BYTES
from flmc.wire.transport import Connection, Disconnected, Message, matches

_KEEP_ALIVE = 15
"""Seconds of silence after which the client asks the broker whether it is alive."""
_MOST_WAITING = 20_000
"""Largest number of messages waiting to be read; further ones, as of a hostile broker, are lost."""
_MOST_WAITING_BYTES = 4 * MOST_BYTES
"""Largest total size of the messages waiting to be read, in bytes; the last one may go beyond it,
and further ones are lost."""
_TIMEOUT = 10.0
"""Seconds to wait for a reply of the broker."""
_LISTEN = 2.0
"""Seconds to wait, after a broker did not answer, for its refusal of the role's certificate, which
would explain the silence."""


@dataclass(frozen=True)
class Credentials:
    """Files with which a role proves its identity.

    Attributes
    ----------
    ca
        Certificate of the authority that both ends trust.
    certificate, key
        The role's own certificate and key; the certificate's common name is the identity that the
        broker sees.
    """

    ca: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Mqtt:
    """Transport over the MQTT broker of an address, with a role's credentials; raises
    ``InvalidSetting`` if the address is no broker's, or credentials are missing or unreadable.

    Attributes
    ----------
    url
        ``mqtts://HOST:PORT`` with certificates, or ``mqtt://HOST:PORT`` without, for a broker on
        the same machine; a role with certificates must use ``mqtts`` to any other machine.
    credentials
        Files for TLS, needed for ``mqtts``.
    """

    url: str
    credentials: Credentials | None = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise InvalidSetting(f"the broker's address {self.url!r} is none: {error}") from error
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
            raise InvalidSetting(
                f"the broker's address must be mqtt://HOST:PORT or mqtts://HOST:PORT, got"
                f" {self.url!r}"
            )
        if parts.scheme == "mqtts" and self.credentials is None:
            raise InvalidSetting(
                f"{self.url!r} needs certificates: name ca, cert and key under [tls] in the"
                " configuration, or use --tls DIR with ca.pem, cert.pem and key.pem in it"
            )
        if parts.scheme == "mqtt" and self.credentials is not None and not _is_here(parts.hostname):
            raise InvalidSetting(
                f"{self.url!r} would leave the certificates unused, and anybody on the way could be"
                " the broker: use mqtts://"
            )
        if parts.username or parts.password:
            raise InvalidSetting(
                "a broker's address must not hold a password; roles prove who they are by"
                " certificates"
            )
        if port == 0:
            raise InvalidSetting(f"the broker's port must be from 1 to 65535, got {self.url!r}")
        self._context  # noqa: B018 (refuses files that cannot be used)

    @cached_property
    def _address(self) -> tuple[str, int]:
        """Host and port of the broker; by default port 8883 with TLS and 1883 without."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or (8883 if parts.scheme == "mqtts" else 1883)

    @cached_property
    def _context(self) -> ssl.SSLContext | None:
        """TLS settings with the authority's and the role's certificate, None without TLS; raises
        ``InvalidSetting`` if a file cannot be used."""
        files = self.credentials
        if files is None or not self.url.startswith("mqtts"):
            return None
        for path in (files.ca, files.certificate, files.key):
            if not path.is_file():
                raise InvalidSetting(f"there is no file {str(path)!r}, which [tls] names")
        try:
            context = ssl.create_default_context(cafile=str(files.ca))
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.load_cert_chain(str(files.certificate), str(files.key))
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(
                f"the certificate {str(files.certificate)!r} cannot be used: {error}"
            ) from error
        return context

    @asynccontextmanager
    async def connect(
        self, identity: str, subscriptions: Sequence[str], will: Message | None
    ) -> AsyncIterator[Connection]:
        """A connection of the role ``identity`` to the broker, subscribed to ``subscriptions`` and
        open while the context lasts; the broker publishes ``will`` for the role if the connection
        breaks. Raises ``Disconnected``, with the likely cause, if it cannot be made or breaks."""
        library = _library()
        host, port = self._address
        last = None
        if will is not None:
            last = library.Will(will.topic, will.payload, qos=1, retain=will.retain)
        try:
            client = library.Client(
                host,
                port,
                identifier=identity,
                protocol=library.ProtocolVersion.V311,
                clean_session=True,
                will=last,
                keepalive=_KEEP_ALIVE,
                timeout=_TIMEOUT,
                tls_context=self._context,
                # TCP_NODELAY is set, because otherwise each round waits for TCP's delayed
                # acknowledgements.
                socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
                max_queued_incoming_messages=_MOST_WAITING,
                queue_type=_BoundedQueue,
                logger=_QUIET,
            )
            async with _connected(client):
                if subscriptions:
                    await _await_cancellable(
                        client.subscribe([(each, 1) for each in subscriptions])
                    )
                yield _MqttConnection(client, library.MqttError, tuple(subscriptions))
        except library.MqttError as error:
            why: str | None = None
            if "timed out" in str(error):
                why = await asyncio.to_thread(self._why_silent)
            raise Disconnected(f"{self.url}: {why or error}") from error

    def _why_silent(self) -> str | None:
        """Likely cause, in words, of a broker's silence until the timeout; None if unknown. With
        TLS a second connection is opened, on which the broker may say that it refuses the
        certificate."""
        # A client of TLS 1.3 finishes its handshake before the broker can refuse the certificate:
        # the refusal comes with the first bytes read. A broker that expects TLS never answers an
        # MQTT CONNECT without it.
        if self._context is None:
            return "it did not answer in time; a broker with TLS is reached by mqtts://"
        host, port = self._address
        try:
            with (
                socket.create_connection((host, port), _LISTEN) as plain,
                self._context.wrap_socket(plain, server_hostname=host) as secure,
            ):
                secure.settimeout(_LISTEN)
                # A broker that accepts the certificate sends nothing, because the client has to
                # speak first.
                secure.recv(1)
        except ssl.SSLError as error:
            words = (error.reason or str(error)).replace("_", " ").lower()
            return f"the broker refuses this certificate: {words}"
        except OSError:
            return None
        return None


class _BoundedQueue(asyncio.Queue[Any]):
    """A queue of arrived messages that is full when it holds 20 000 messages, or more bytes of
    payload than ``_MOST_WAITING_BYTES``."""

    def __init__(self, maxsize: int = 0) -> None:
        super().__init__(maxsize)
        self._bytes = 0

    def full(self) -> bool:
        """Whether a further message would be lost, because the queue holds too many messages or
        bytes."""
        return super().full() or self._bytes > _MOST_WAITING_BYTES

    def _put(self, item: Any) -> None:
        """Add a message; ``asyncio.Queue`` calls this once ``full`` has allowed it."""
        self._bytes += len(item.payload)
        super()._put(item)

    def _get(self) -> Any:
        """Remove and return the oldest message; ``asyncio.Queue`` calls this for every message."""
        item = super()._get()
        self._bytes -= len(item.payload)
        return item


@asynccontextmanager
async def _connected(client: Any) -> AsyncIterator[None]:
    """Keep a client of aiomqtt connected while the context lasts; a cancellation waits until
    connecting has succeeded or failed, and then disconnects."""
    # Connecting is never cancelled half-way: aiomqtt would leave half a connection whose callbacks
    # print tracebacks.
    connecting = asyncio.ensure_future(client.__aenter__())
    try:
        await asyncio.shield(connecting)
    except asyncio.CancelledError:
        await asyncio.wait({connecting})
        if connecting.exception() is None:
            with suppress(Exception):  # closing fails if the connection broke meanwhile: no harm
                await client.__aexit__(None, None, None)
        raise
    try:
        yield
    finally:
        await _await_cancellable(client.__aexit__(None, None, None))


async def _await_cancellable(call: Awaitable[Any]) -> None:
    """Await a call of aiomqtt, and raise ``CancelledError`` if a cancellation arrived meanwhile.

    ``asyncio.wait_for``, which the library uses, loses in Python 3.11 a cancellation that arrives
    together with the result.
    """
    task = asyncio.current_task()
    assert task is not None
    # A lost cancellation raises no exception, but the task still counts it as requested: so the
    # count before the call is compared with the count after it.
    before = task.cancelling()
    await call
    if task.cancelling() > before:
        raise asyncio.CancelledError


def _is_here(host: str) -> bool:
    """Whether a host name means this machine."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


_QUIET = logging.getLogger("flmc.wire.mqtt.client")
# aiomqtt's own log lines are switched off: the roles log themselves that they have lost the broker
_QUIET.setLevel(logging.CRITICAL)


class _MqttConnection:
    """An open connection to an MQTT broker, which publishes messages and yields those that fit the
    subscriptions ``patterns``; a failure of the client becomes ``Disconnected``."""

    def __init__(self, client: Any, error: type[Exception], patterns: tuple[str, ...]) -> None:
        self._client, self._error, self._patterns = client, error, patterns

    async def publish(self, messages: Sequence[Message]) -> None:
        """Hand messages over in this order, and return when the broker has acknowledged all of
        them; raises ``Disconnected`` if the connection breaks."""

        async def one(message: Message) -> None:
            await self._client.publish(message.topic, message.payload, qos=1, retain=message.retain)

        try:
            # The messages are sent together, so that none waits until the one before it is
            # acknowledged.
            await asyncio.gather(*(one(each) for each in messages))
        except self._error as error:
            raise Disconnected(str(error)) from error

    async def messages(self) -> AsyncIterator[Message]:
        """The arriving messages that fit a subscription, until the connection breaks with
        ``Disconnected``; the payload of an oversized message is empty."""
        try:
            async for arrival in self._client.messages:
                # A message is compared with the subscriptions, because the amqtt broker also
                # delivers topics to which the client has not subscribed.
                if not any(matches(pattern, str(arrival.topic)) for pattern in self._patterns):
                    continue
                payload = arrival.payload if isinstance(arrival.payload, bytes) else b""
                if len(payload) > MOST_BYTES:
                    # An oversized payload is replaced by an empty one, which counts as malformed
                    # and frees the memory.
                    payload = b""
                yield Message(str(arrival.topic), payload, bool(arrival.retain))
        except self._error as error:
            raise Disconnected(str(error)) from error


def _library() -> Any:
    """The module aiomqtt; raises ``MissingExtra`` if the extra ``mqtt`` is not installed."""
    try:
        return importlib.import_module("aiomqtt")
    except ImportError as error:
        raise MissingExtra("a federation needs the extra mqtt: pip install 'flmc[mqtt]'") from error
