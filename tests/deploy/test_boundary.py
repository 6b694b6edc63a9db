"""The trust boundary on a real mosquitto with TLS, by what it delivers: it denies silently, so that
a forbidden message is known by a later one that arrives alone."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import aiomqtt
import pytest

from deploy.brokers import (
    HOST,
    Broker,
    Plain,
    connected,
    context_of,
    make_federation,
    needs_mosquitto,
    running,
)
from flmc.deploy.setup import directory as setup
from flmc.wire.mqtt import Credentials, Mqtt
from flmc.wire.topics import RIGHTS
from flmc.wire.transport import Disconnected, Message
from support import full_only

pytestmark = needs_mosquitto

CLIENTS = ("server", "air", "observer", "device-0", "device-1")
SENTINEL = Message("flmc/1/run/end", b"sentinel", False)
"""Everybody reads this topic, and the server writes it: after it nothing else is to come."""
ENDS = (
    *("plan", "theta", "round", "y", "status", "air", "end", "uplink", "alive", "other"),
    *(f"{what}/{who}" for what in ("uplink", "alive") for who in CLIENTS),
    "uplink/device-0/more",
)
TOPICS = (*(f"flmc/1/run/{end}" for end in ENDS), "flmc/2/run/plan", "flmc/1/plan", "other")


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose certificates no test changes."""
    with running(make_federation(tmp_path_factory.mktemp("shared") / "federation", 2)) as broker:
        yield broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of the test's own."""
    with running(make_federation(tmp_path / "federation", 2)) as broker:
        yield broker


def may(identity: str, direction: str, topic: str) -> bool:
    """What RIGHTS says, worked out apart from the program."""
    rights = RIGHTS["device" if identity.startswith("device") else identity]
    return any(
        re.fullmatch("flmc/1/[^/]+/" + end.replace("%u", identity).replace("+", "[^/]+"), topic)
        for end in getattr(rights, direction)
    )


async def until_sentinel(connection: Plain) -> list[Message]:
    """Messages that arrive before the sentinel."""
    found: list[Message] = []

    async def read() -> None:
        async for message in connection.messages():
            if message.payload == SENTINEL.payload:
                return
            found.append(message)

    await asyncio.wait_for(read(), 60)
    return found


async def heard(
    broker: Broker, reader: str, subscriptions: Sequence[str], said: Mapping[str, Sequence[Message]]
) -> list[Message]:
    """What a reader gets when others say something."""
    async with AsyncExitStack() as stack:

        async def enter(identity: str, *patterns: str) -> Plain:
            return await stack.enter_async_context(connected(broker, identity, patterns))

        reading = await enter(reader, *subscriptions, SENTINEL.topic)
        for writer, messages in said.items():
            await (await enter(writer)).publish(messages)
        # An identity has one connection.
        server = reading if reader == "server" else await enter("server")
        await server.publish([SENTINEL])
        return await until_sentinel(reading)


def test_every_right_and_no_other(shared_broker: Broker) -> None:
    """All identities listen to everything; each writes every topic. What is delivered is what
    RIGHTS allows to both."""

    async def scenario() -> dict[str, set[tuple[str, str]]]:
        async with AsyncExitStack() as stack:
            connections = {
                identity: await stack.enter_async_context(connected(shared_broker, identity, ["#"]))
                for identity in CLIENTS
            }
            for identity, connection in connections.items():
                await connection.publish(
                    [Message(topic, identity.encode(), False) for topic in TOPICS]
                )
            await connections["server"].publish([SENTINEL])
            return {
                identity: {(m.payload.decode(), m.topic) for m in await until_sentinel(connection)}
                for identity, connection in connections.items()
            }

    delivered = asyncio.run(scenario())
    for reader in CLIENTS:
        assert delivered[reader] == {
            (writer, topic)
            for writer in CLIENTS
            for topic in TOPICS
            if may(writer, "write", topic) and may(reader, "read", topic)
        }
    # The sentence that all of this is for, apart from RIGHTS.
    readers = {reader for reader in CLIENTS if any("uplink" in t for _, t in delivered[reader])}
    assert readers == {"air"}
    assert {w for each in delivered.values() for w, _ in each} == {*CLIENTS} - {"observer"}


def test_the_server_cannot_read_uplinks_by_any_subscription(shared_broker: Broker) -> None:
    uplink = Message("flmc/1/run/uplink/device-0", b"symbols", False)
    patterns = ["flmc/1/run/uplink/device-0", "flmc/1/+/uplink/+", "flmc/1/run/uplink/#", "#"]
    said = {"device-0": [uplink]}
    assert asyncio.run(heard(shared_broker, "server", patterns, said)) == []
    assert asyncio.run(heard(shared_broker, "device-1", patterns, said)) == []
    assert asyncio.run(heard(shared_broker, "air", patterns[:1], said)) == [uplink]


def test_a_device_cannot_speak_as_another(shared_broker: Broker) -> None:
    forged, own = (
        Message(f"flmc/1/run/uplink/device-{device}", b"symbols", False) for device in (1, 0)
    )
    found = asyncio.run(
        heard(shared_broker, "air", ["flmc/1/run/uplink/+"], {"device-0": [forged, own]})
    )
    assert found == [own]


def test_a_last_will_has_no_more_rights(shared_broker: Broker) -> None:
    async def scenario(topic: str) -> list[Message]:
        async with (
            connected(shared_broker, "air", ["flmc/1/run/#"]) as air,
            connected(shared_broker, "server") as server,
        ):
            will = Message(topic, b"will", False)
            dying = connected(shared_broker, "device-0", will=will)
            await dying.__aenter__()
            # Another connection of the same identity closes the first, as a death would; when it
            # is there, the first one's will was sent.
            async with connected(shared_broker, "device-0"):
                await server.publish([SENTINEL])
                found = await until_sentinel(air)
            with suppress(aiomqtt.MqttError):  # it was closed already
                await dying.__aexit__(None, None, None)
            return found

    assert asyncio.run(scenario("flmc/1/run/alive/device-1")) == []
    assert asyncio.run(scenario("flmc/1/run/alive/device-0")) != []


def test_nobody_is_thrown_out_by_a_borrowed_name(shared_broker: Broker) -> None:
    """A broker closes the older of two connections with the same client id; here a client's id is
    its identity, whatever it asks for."""
    uplink = Message("flmc/1/run/uplink/device-1", b"symbols", False)

    async def scenario() -> list[Message]:
        async with (
            connected(shared_broker, "air", ["flmc/1/run/#"]) as air,
            connected(shared_broker, "device-0", ["flmc/1/run/#"], client_id="air"),
            connected(shared_broker, "device-1") as device,
            connected(shared_broker, "server") as server,
        ):
            await device.publish([uplink])
            await server.publish([SENTINEL])
            return await until_sentinel(air)

    assert asyncio.run(scenario()) == [uplink]


CONNECT = b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test"
"""A packet of MQTT 3.1.1 that asks for a connection as the client "test"."""
ACCEPTED = b"\x20\x02\x00\x00"


def accepts(
    broker: Broker, context: ssl.SSLContext | None, session: ssl.SSLSession | None = None
) -> ssl.SSLSession | bool | None:
    """Whether the broker accepts a client, by its own word: with TLS 1.3 a client that is refused
    learns it from the first answer only. If it does: the session of TLS, if there is one."""
    with socket.create_connection((HOST, broker.port), timeout=60) as plain:
        try:
            if context is None:
                plain.sendall(CONNECT)
                return plain.recv(4) == ACCEPTED
            with context.wrap_socket(plain, server_hostname=HOST, session=session) as stream:
                stream.sendall(CONNECT)
                return stream.recv(4) == ACCEPTED and (stream.session or True)
        except (ConnectionError, ssl.SSLError):
            return False


def lets_in(broker: Broker, folder: str | Path) -> bool:
    """Whether the broker accepts the certificate of a folder, by name one of the federation."""
    return bool(accepts(broker, context_of(broker.directory / folder)))


def test_only_certificates_of_the_authority_count(shared_broker: Broker, tmp_path: Path) -> None:
    foreign = make_federation(tmp_path / "other", 1) / "device-0"
    own = shared_broker.directory / "device-0"
    assert accepts(shared_broker, context_of(own))
    # It trusts the broker, which is not to trust it.
    assert not accepts(shared_broker, context_of(foreign, authority=own))
    # And who trusts another authority does not trust this broker.
    with (
        socket.create_connection((HOST, shared_broker.port), timeout=60) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        context_of(own, authority=foreign).wrap_socket(plain, server_hostname=HOST)


def test_without_a_certificate_nobody_is_let_in(shared_broker: Broker) -> None:
    authority = shared_broker.directory / "device-0" / "ca.pem"
    assert not accepts(shared_broker, ssl.create_default_context(cafile=str(authority)))
    assert not accepts(shared_broker, None)  # nor without TLS


def test_the_brokers_certificate_is_no_clients(shared_broker: Broker) -> None:
    assert not lets_in(shared_broker, "broker")


def test_a_device_cannot_pose_as_the_broker(shared_broker: Broker) -> None:
    """Its certificate is one for clients, which clients refuse."""
    folder = shared_broker.directory / "device-0"
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    asking = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    asking.check_hostname = False  # its names alone would give it away

    def handshake(certificate: str) -> None:
        place = shared_broker.directory / certificate
        serving.load_cert_chain(place / "cert.pem", place / "key.pem")
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = asking.wrap_bio(incoming, outgoing)
        server = serving.wrap_bio(outgoing, incoming, server_side=True)
        for _ in range(2):
            for side in (client, server):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()

    handshake("broker")
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        handshake("device-0")


def test_a_revoked_certificate_is_refused(broker: Broker) -> None:
    setup.revoke(broker.directory, "device-0")
    # Nothing has changed before the broker is told, as the operator is told to do.
    assert lets_in(broker, "device-0")
    broker.reload()
    assert not lets_in(broker, "device-0")
    assert lets_in(broker, "device-1")
    broker.stop()
    broker.start()
    assert not lets_in(broker, "device-0")
    assert lets_in(broker, "device-1")


@full_only
def test_whoever_is_refused_is_told_why(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The library alone would say that an operation timed out."""
    monkeypatch.setattr("flmc.wire.mqtt._TIMEOUT", 1.0)
    monkeypatch.setattr("flmc.wire.mqtt._LISTEN", 20.0)  # nothing is judged by it

    async def enter(client: Mqtt) -> None:
        async with client.connect("device-0", (), None):
            raise AssertionError("it was let in")

    setup.revoke(broker.directory, "device-0")
    broker.reload()
    with pytest.raises(Disconnected, match=r"refuses this certificate: .*certificate revoked"):
        asyncio.run(enter(broker.client("device-0")))
    foreign = make_federation(tmp_path / "other", 1) / "device-0"
    own = broker.directory / "device-0" / "ca.pem"
    files = Credentials(own, foreign / "cert.pem", foreign / "key.pem")
    with pytest.raises(Disconnected, match=r"refuses this certificate: .*unknown ca"):
        asyncio.run(enter(Mqtt(broker.url, files)))


def test_revoking_several_times_at_once(broker: Broker) -> None:
    """Lists within the same second: the newest counts, and none lies in the future."""
    for identity in ("device-0", "observer", "device-1"):
        setup.revoke(broker.directory, identity)
        broker.reload()
        assert not lets_in(broker, identity)
        assert lets_in(broker, "air")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_revoked_certificate_cannot_resume_its_session(
    broker: Broker, version: ssl.TLSVersion
) -> None:
    """A resumed session of TLS shows no certificate."""
    context = context_of(broker.directory / "device-0")
    context.maximum_version = version
    session = accepts(broker, context)
    assert isinstance(session, ssl.SSLSession)
    assert accepts(broker, context, session)
    setup.revoke(broker.directory, "device-0")
    broker.reload()
    assert not accepts(broker, context, session)


def test_a_connection_that_is_there_loses_its_rights(broker: Broker) -> None:
    """SIGHUP closes no connection, but the access list is read again."""
    uplink = Message("flmc/1/run/uplink/device-0", b"symbols", False)
    plan = Message("flmc/1/run/plan", b"plan", False)

    async def scenario() -> tuple[list[Message], list[Message]]:
        async with (
            connected(broker, "air", ["#"]) as air,
            connected(broker, "server") as server,
            connected(broker, "device-0", ["#"]) as device,
        ):
            before: list[Message] = []
            await device.publish([uplink])
            await server.publish([plan, SENTINEL])
            before += await until_sentinel(air)
            before += await until_sentinel(device)
            setup.revoke(broker.directory, "device-0")
            await asyncio.to_thread(broker.reload)
            await device.publish([uplink])
            await server.publish([plan, SENTINEL])
            after = await until_sentinel(air)
            # The device does not even get the sentinel.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(device.messages()), 0.5)
            return before, after

    before, after = asyncio.run(scenario())
    assert before == [uplink, plan, plan]
    assert after == [plan]


def test_a_renewed_certificate_counts_and_the_old_one_can_be_ended(
    broker: Broker, tmp_path: Path
) -> None:
    old = shutil.copytree(broker.directory / "device-0", tmp_path / "old")
    setup.renew(broker.directory, "device-0")
    assert lets_in(broker, "device-0")  # the broker needs not be told
    assert lets_in(broker, old)
    setup.revoke(broker.directory, "device-0", superseded=True)
    broker.reload()
    assert lets_in(broker, "device-0")
    assert not lets_in(broker, old)
    # It has kept its rights.
    uplink = Message("flmc/1/run/uplink/device-0", b"symbols", False)
    assert asyncio.run(heard(broker, "air", ["#"], {"device-0": [uplink]})) == [uplink]


def test_a_revoked_identity_can_be_readmitted(broker: Broker, tmp_path: Path) -> None:
    stolen = shutil.copytree(broker.directory / "device-0", tmp_path / "stolen")
    setup.revoke(broker.directory, "device-0")
    setup.renew(broker.directory, "device-0", readmit=True)
    broker.reload()
    assert not lets_in(broker, stolen)
    uplink = Message("flmc/1/run/uplink/device-0", b"symbols", False)
    assert asyncio.run(heard(broker, "air", ["#"], {"device-0": [uplink]})) == [uplink]


def test_the_broker_takes_its_renewed_certificate_by_a_signal(broker: Broker) -> None:
    def shown() -> str:
        """The certificate that the broker shows, as PEM."""
        context = ssl.create_default_context(cafile=str(broker.directory / "air" / "ca.pem"))
        with (
            socket.create_connection((HOST, broker.port), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as stream,
        ):
            return ssl.DER_cert_to_PEM_cert(stream.getpeercert(True) or b"")

    before = (broker.directory / "broker" / "cert.pem").read_text()
    assert shown() == before
    setup.renew(broker.directory, "broker")
    broker.reload()
    assert shown() == (broker.directory / "broker" / "cert.pem").read_text() != before
    assert lets_in(broker, "device-0")
