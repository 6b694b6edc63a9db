"""The directory of a federation: what init writes, what renew and revoke change, what they
refuse."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import subprocess
import sys
import tomllib
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from nacl.public import PrivateKey, PublicKey, SealedBox

from flmc.base.errors import InvalidSetting, RunFailed
from flmc.cli import main
from flmc.cli.commands import deployment
from flmc.deploy.setup import authority, folders
from flmc.deploy.setup import directory as setup
from flmc.deploy.setup.broker_files import access_list, configuration
from flmc.runs.files.durable_files import locked, read_json, write_json
from flmc.wire.topics import RIGHTS

DEVICES = ("device-0", "device-1", "device-2")
CLIENTS = ("server", "air", "observer", "monitor", *DEVICES)
FOLDERS = ("broker", *CLIENTS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that no test changes; units expect it where it is."""
    directory = tmp_path_factory.mktemp("made") / "federation"
    setup.init(directory, 3, hosts=("broker.example.org", "192.0.2.7"), installed=str(directory))
    return directory


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    """A copy of it for a test."""
    return shutil.copytree(made, tmp_path / "federation")


def certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "cert.pem").read_bytes())


def revoked_numbers(directory: Path) -> set[int]:
    """Serial numbers in the broker's revocation list."""
    found = x509.load_pem_x509_crl((directory / "broker" / "crl.pem").read_bytes())
    return {each.serial_number for each in found}


# Certificates


def test_certificates_say_who_and_what_for(made: Path) -> None:
    ca = x509.load_pem_x509_certificate((made / "authority" / "ca.pem").read_bytes())
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert ca.not_valid_after_utc - ca.not_valid_before_utc > timedelta(days=3650)
    numbers = set()
    for name in FOLDERS:
        found = certificate(made / name)
        found.verify_directly_issued_by(ca)
        [common] = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        assert common.value == name
        [use] = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        kind = ExtendedKeyUsageOID
        assert use == (kind.SERVER_AUTH if name == "broker" else kind.CLIENT_AUTH)
        assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        lasts = found.not_valid_after_utc - found.not_valid_before_utc
        assert timedelta(days=365) < lasts < timedelta(days=366)
        assert (made / name / "ca.pem").read_bytes() == (made / "authority/ca.pem").read_bytes()
        numbers.add(found.serial_number)
    assert len(numbers) == len(FOLDERS)
    assert min(numbers) > 1 << 64  # random ones of 159 bits; a counter would begin with 1
    keys = {(made / name / "key.pem").read_bytes() for name in FOLDERS}
    assert len(keys) == len(FOLDERS)


def test_the_broker_is_named_by_its_hosts_and_by_loopback(made: Path) -> None:
    names = certificate(made / "broker").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert names.value.get_values_for_type(x509.DNSName) == ["broker.example.org", "localhost"]
    addresses = [str(each) for each in names.value.get_values_for_type(x509.IPAddress)]
    assert addresses == ["192.0.2.7", "127.0.0.1", "::1"]


def test_no_certificate_outlives_the_authority(tmp_path: Path) -> None:
    setup.init(tmp_path / "new", 1, days=500, authority_days=30)
    ca = x509.load_pem_x509_certificate((tmp_path / "new/authority/ca.pem").read_bytes())
    assert certificate(tmp_path / "new/air").not_valid_after_utc == ca.not_valid_after_utc


def test_secrets_are_for_their_owner_only(made: Path, own: Path) -> None:
    setup.renew(own, "device-1")
    for directory in (made, own):
        secrets = [*directory.rglob("*.key"), *directory.rglob("key.pem")]
        assert len(secrets) == len(FOLDERS) + 2  # of the authority, and of the air's sealing
        assert {path.stat().st_mode & 0o777 for path in secrets} == {0o600}
        assert {path.stat().st_mode & 0o777 for path in directory.iterdir() if path.is_dir()} == {
            0o700
        }


def test_the_air_opens_what_devices_seal(made: Path) -> None:
    secret = PrivateKey(bytes.fromhex((made / "air" / "air.key").read_text()))
    for name in (*DEVICES, "air"):
        public = PublicKey(bytes.fromhex((made / name / "air.pub").read_text()))
        assert SealedBox(secret).decrypt(SealedBox(public).encrypt(b"bits")) == b"bits"
    for name in ("server", "broker", "observer", "monitor", *DEVICES):
        assert not (made / name / "air.key").exists()


# The access list


def parsed(text: str) -> dict[str | None, list[tuple[str, str]]]:
    """An access list by users, None for anonymous ones: what mosquitto.conf(5) says of it."""
    found: dict[str | None, list[tuple[str, str]]] = {}
    user = None
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "user":
            [user] = words[1:]
        else:
            assert words[0] == "topic", "a pattern would be for everybody"
            [access, topic] = words[1:]
            assert access in ("read", "write")
            found.setdefault(user, []).append((access, topic))
    return found


def matches(pattern: str, topic: str) -> bool:
    """Whether a topic is one of a pattern's, by the rules of MQTT."""
    wanted, levels = pattern.split("/"), topic.split("/")
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(levels) or level not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)


@pytest.mark.parametrize("direction", ["read", "write"])
def test_the_access_list_is_rights_and_nothing_else(made: Path, direction: str) -> None:
    rules = parsed((made / "broker" / "acl").read_text())
    assert set(rules) == set(CLIENTS)
    strangers = (None, "", "device-3", "device", "broker", "root", "device-00", "+", "%u")
    whats = ("plan", "theta", "round", "y", "status", "air", "end", "uplink", "alive", "$SYS")
    whos = [None, *CLIENTS, "device-3", "device-0/x", ""]
    allowed = 0
    for identity, what, who, run in product(
        (*CLIENTS, *strangers), whats, whos, ("first", "x.y-z")
    ):
        topic = f"flmc/1/{run}/{what}" + ("" if who is None else f"/{who}")
        given = any(
            access == direction and matches(pattern, topic)
            for access, pattern in rules.get(identity, [])
        )
        role = "device" if identity in DEVICES else str(identity)
        ends = getattr(RIGHTS[role], direction) if identity in CLIENTS else ()
        end = what if who is None else f"{what}/{who}"
        # An empty level is one, which + stands for; nobody is called so.
        wanted = any(
            re.fullmatch(each.replace("%u", str(identity)).replace("+", "[^/]*"), end)
            for each in ends
        )
        assert given == wanted, (identity, topic)
        allowed += given
    assert allowed >= 30
    for other in ("flmc/2/first/plan", "flmc/1/plan", "$SYS/broker/version", "#", "plan"):
        assert not any(matches(p, other) for each in rules.values() for _, p in each)


def test_who_has_no_rights_gets_no_block() -> None:
    for stranger in ("broker", "device", "device-01", "nobody"):
        with pytest.raises(InvalidSetting, match=re.escape(repr(stranger))):
            access_list([stranger])


# Files of the broker, scripts, units, configurations


def test_the_broker_listens_on_loopback_unless_it_has_another_name() -> None:
    def listener(host: str) -> str:
        text = configuration(host, 8883, 3, by_root=False)
        assert "\nuser " not in text
        [line] = [line for line in text.splitlines() if line.startswith("listener")]
        return line

    assert listener("127.0.0.1") == listener("localhost") == "listener 8883 127.0.0.1"
    assert listener("::1") == "listener 8883 ::1"
    assert listener("broker.example.org") == "listener 8883"


def test_queues_hold_a_round_of_all_devices() -> None:
    for devices in (1, 1000, 10_000):
        lines = configuration("localhost", 1, devices, by_root=False).splitlines()
        values = dict(line.split(maxsplit=1) for line in lines if line and line[0] != "#")
        assert int(values["max_queued_messages"]) >= 2 * devices
        assert devices <= int(values["max_inflight_messages"]) <= 65535
        assert values["set_tcp_nodelay"] == values["require_certificate"] == "true"
        assert values["allow_anonymous"] == values["persistence"] == "false"


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_scripts_are_scripts(made: Path, shell: str) -> None:
    scripts = list(made.rglob("start*.sh"))
    assert {path.parent.name for path in scripts} == {*FOLDERS} - {"observer", "monitor"}
    for path in scripts:
        assert path.stat().st_mode & 0o100
        subprocess.run([shell, "-n", str(path)], check=True)


def test_scripts_call_the_commands(made: Path, tmp_path: Path) -> None:
    """With a stand-in for flmc that prints where it is, and its words."""
    stand_in = tmp_path / "flmc"
    stand_in.write_text('#!/bin/sh\necho "$PWD" "$@"\n')
    stand_in.chmod(0o755)
    common = "--config config.toml --broker mqtts://broker.example.org:8883"
    for name, words in {
        "air": "air",
        "server": "serve",
        "device-2": "device --id 2 --data data.csv",
    }.items():
        done = subprocess.run(
            [str(made / name / "start.sh")],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [str(made / name), *f"{words} {common}".split()]


def test_units_are_hardened(made: Path) -> None:
    units = list(made.rglob("*.service"))
    assert {path.parent.name for path in units} == {*FOLDERS} - {"observer", "monitor"}
    users = set()
    for path in units:
        lines = path.read_text().splitlines()
        assert {"NoNewPrivileges=yes", "ProtectSystem=strict", "Restart=on-failure"} <= {*lines}
        [user] = [line for line in lines if line.startswith("User=")]
        users.add(user)
        written = [line for line in lines if line.startswith("ReadWritePaths=")]
        journal = f"ReadWritePaths={path.parent / 'journal'}"
        assert written == ([] if path.parent.name == "broker" else [journal])
        assert not written or (path.parent / "journal").is_dir()
    assert len(users) == len(units)


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_understands_the_units(made: Path) -> None:
    units = [str(path) for path in made.rglob("*.service")]
    done = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    about = [line for line in done.stderr.splitlines() if "flmc" in line]
    assert about == []


def test_configurations_name_files_that_are_there(made: Path) -> None:
    for name in CLIENTS:
        document = tomllib.loads((made / name / "config.toml").read_text())
        named = {*document["tls"].values()}
        assert set(document["tls"]) == {"ca", "cert", "key"}
        named |= {document[key] for key in ("air_key", "journal", "federation") if key in document}
        assert all((made / name / each).exists() for each in named)
    device = tomllib.loads((made / "device-2/config.toml").read_text())
    assert (device["id"], set(device["budget"])) == (2, {"epsilon", "delta", "runs"})
    shared = {(made / name / "federation.toml").read_text() for name in ("air", "server")}
    assert len(shared) == 1
    assert tomllib.loads(shared.pop())["quorum"] == 2


# Renew and revoke


def test_renewing_and_revoking_superseded_ones(own: Path) -> None:
    first = certificate(own / "device-1")
    done = setup.renew(own, "device-1", days=10)
    second = certificate(own / "device-1")
    assert second.serial_number != first.serial_number
    assert second.not_valid_after_utc - second.not_valid_before_utc < timedelta(days=11)
    assert done.changed == ("device-1/cert.pem", "device-1/key.pem")
    assert "--superseded" in done.steps[1]
    assert revoked_numbers(own) == set()
    setup.revoke(own, "device-1", superseded=True)
    assert revoked_numbers(own) == {first.serial_number}
    assert set(parsed((own / "broker/acl").read_text())) == set(CLIENTS)
    done = setup.revoke(own, "device-1")
    assert revoked_numbers(own) == {first.serial_number, second.serial_number}
    assert set(parsed((own / "broker/acl").read_text())) == {*CLIENTS} - {"device-1"}
    assert done.changed == ("broker/crl.pem", "broker/acl")
    assert setup.revoke(own, "device-1").changed == done.changed  # again, to no harm
    assert len(revoked_numbers(own)) == 2


def test_a_revoked_identity_comes_back_by_a_word_only(own: Path) -> None:
    setup.revoke(own, "device-1")
    before = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    with pytest.raises(InvalidSetting, match="--readmit"):
        setup.renew(own, "device-1")
    assert before | {own / "authority/.lock": b""} == {
        path: b"" if path.name == ".lock" else path.read_bytes()
        for path in own.rglob("*")
        if path.is_file()
    }
    old = revoked_numbers(own)
    setup.renew(own, "device-1", readmit=True)
    assert revoked_numbers(own) == old
    assert certificate(own / "device-1").serial_number not in old
    assert set(parsed((own / "broker/acl").read_text())) == set(CLIENTS)


def test_an_air_that_comes_back_has_new_keys_for_sealing(own: Path) -> None:
    old = (own / "air/air.key").read_text()
    setup.renew(own, "air")
    assert (own / "air/air.key").read_text() == old
    setup.revoke(own, "air")
    shutil.rmtree(own / "device-1")  # it lives on its own machine by now
    done = setup.renew(own, "air", readmit=True)
    assert (own / "air/air.key").read_text() != old
    secret = PrivateKey(bytes.fromhex((own / "air/air.key").read_text()))
    for name in ("air", "device-0", "device-2"):
        assert (own / name / "air.pub").read_text().strip() == bytes(secret.public_key).hex()
    assert not (own / "device-1").exists()
    assert any("air.pub to every device" in step for step in done.steps)


def test_folders_that_were_moved_away_are_made_again(own: Path) -> None:
    for name in ("device-1", "broker"):
        shutil.rmtree(own / name)
    setup.renew(own, "device-1")
    assert {path.name for path in (own / "device-1").iterdir()} == {"ca.pem", "cert.pem", "key.pem"}
    assert (own / "device-1/ca.pem").read_bytes() == (own / "authority/ca.pem").read_bytes()
    setup.revoke(own, "device-2")
    assert len(revoked_numbers(own)) == 1


def test_lists_have_growing_times_that_are_past(own: Path) -> None:
    """Of two lists with the same time OpenSSL keeps the older, and one of the future is refused."""
    times = []
    for name in DEVICES:
        setup.revoke(own, name)
        found = x509.load_pem_x509_crl((own / "broker/crl.pem").read_bytes())
        times.append(found.last_update_utc)
        ca = x509.load_pem_x509_certificate((own / "authority/ca.pem").read_bytes())
        assert found.next_update_utc == ca.not_valid_after_utc
        revoked = {each.revocation_date_utc for each in found}
        assert found.last_update_utc < min(revoked)  # an hour before this test
    assert times == sorted(set(times))


# Refusals


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_devices": 0}, "num_devices"),
        ({"num_devices": 10_001}, "10001"),
        ({"port": 0}, "port"),
        ({"port": 65536}, "65536"),
        ({"days": 0}, "days"),
        ({"authority_days": 0}, "authority_days"),
        ({"hosts": ()}, "host"),
        ({"hosts": ("mqtts://here",)}, "mqtts://here"),
        ({"hosts": ("256.1.1.1",)}, "256.1.1.1"),
        ({"hosts": ("a b",)}, "a b"),
        ({"hosts": ("-a",)}, "-a"),
        ({"hosts": ("x\nuser root",)}, "user root"),
        ({"installed": "relative"}, "relative"),
        ({"installed": "/a b"}, "/a b"),
    ],
)
def test_init_refuses(tmp_path: Path, given: dict[str, object], said: str) -> None:
    values: dict[str, object] = {"num_devices": 2, **given}
    with pytest.raises(InvalidSetting, match=re.escape(said)):
        setup.init(tmp_path / "new", **values)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_init_wants_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, empty = tmp_path / "full", tmp_path / "empty"
    for each in (full, empty):
        each.mkdir()
    (full / "mine").write_text("mine")
    with pytest.raises(InvalidSetting, match="full"):
        setup.init(full, 1)
    assert [path.name for path in full.iterdir()] == ["mine"]
    with pytest.raises(InvalidSetting, match="mine"):
        setup.init(full / "mine", 1)
    with pytest.raises(InvalidSetting, match="nowhere"):
        setup.init(tmp_path / "nowhere" / "new", 1)
    monkeypatch.chdir(empty)
    with pytest.raises(InvalidSetting, match="directory that you are in"):
        setup.init(Path(), 1)
    monkeypatch.chdir(tmp_path)
    setup.init(Path("empty"), 1)
    assert (empty / "authority").is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {"full", "empty"}


def test_a_failing_init_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "write_access", fail)
    with pytest.raises(KeyboardInterrupt):
        setup.init(tmp_path / "new", 2)
    assert list(tmp_path.iterdir()) == []


def test_unknown_identities_are_refused_by_name(own: Path) -> None:
    for change in (setup.renew, setup.revoke):
        with pytest.raises(InvalidSetting, match=r"'device-3'.*known are: broker, server"):
            change(own, "device-3")
        with pytest.raises(InvalidSetting, match="deploy init"):
            change(own.parent, "device-0")
    with pytest.raises(InvalidSetting, match="broker cannot be revoked"):
        setup.revoke(own, "broker")
    with pytest.raises(InvalidSetting, match="nothing supersedes"):
        setup.revoke(own, "air", superseded=True)
    assert revoked_numbers(own) == set()


def test_one_process_at_a_time(own: Path) -> None:
    with locked(own / "authority"), pytest.raises(InvalidSetting, match="another process"):
        setup.revoke(own, "device-0")


@pytest.mark.parametrize("damage", ["digits", "version", "key", "entry"])
def test_a_damaged_authority_is_not_used(own: Path, damage: str) -> None:
    index = own / "authority" / authority.INDEX
    if damage == "digits":
        index.write_text(index.read_text().replace("device-1", "device-9"))
    elif damage == "key":
        shutil.copy(own / "air/key.pem", own / "authority/ca.key")
    else:
        document = read_json(index)
        if damage == "version":
            document["index_version"] = 99
        else:
            del document["issued"][0]["names"]
        write_json(index, document)
    with pytest.raises(RunFailed):
        setup.renew(own, "device-0")


# The commands


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "new")
    assert main(["deploy", "init", place, "--devices", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["identities"] == [
        "broker",
        "server",
        "air",
        "observer",
        "monitor",
        *DEVICES[:2],
    ]
    assert {path.name for path in Path(place).iterdir()} == {*document["changed"], "README.txt"}
    assert main(["deploy", "renew", place, "device-1"]) == 0
    assert "device-1/cert.pem" in capsys.readouterr().out
    assert main(["deploy", "revoke", place, "device-1"]) == 0
    assert "SIGHUP" in capsys.readouterr().out
    for words, said in {
        ("renew", place, "device-1"): "--readmit",
        ("renew", place, "nobody"): "'nobody'",
        ("init", place, "--devices", "2"): "empty directory",
        ("init", f"{place}er", "--devices", "0"): "devices must",
        (): "Usage",
    }.items():
        assert main(["deploy", *words]) == 2
        told = capsys.readouterr()
        assert said in told.out + told.err
        assert not words or told.err.count("\n") == 1


def test_defaults_of_commands_are_those_of_functions() -> None:
    """The commands state them, because they do not import what needs an extra."""
    pairs = (
        (deployment.init_command, setup.init, ("port", "days", "authority_days", "installed")),
        (deployment.renew_command, setup.renew, ("days", "readmit")),
        (deployment.revoke_command, setup.revoke, ("superseded",)),
    )
    for command, function, names in pairs:
        there, here = (inspect.signature(each).parameters for each in (command, function))
        assert [there[n].default for n in names] == [here[n].default for n in names]


@pytest.mark.parametrize("missing", ["cryptography", "nacl"])
def test_a_missing_extra_is_one_line(tmp_path: Path, missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from flmc.cli import main;"
        " sys.exit(main(['deploy', 'init', 'new', '--devices', '2']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "flmc[mqtt]" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# The container


def test_the_container_runs_as_nobody_special() -> None:
    """It is not built here, because that needs an image; its instructions are read."""
    root = Path(__file__).parents[2]
    text = (root / "examples/container/Containerfile").read_text().replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    last = max(place for place, step in enumerate(steps) if step[0] == "FROM")
    final = [(word, rest) for word, rest in steps[last:]]
    [user] = [rest for word, rest in final if word == "USER"]
    assert user.split(":")[0] not in ("root", "0")
    assert ("VOLUME", f"/role/{folders.JOURNAL}") in final
    assert ("ENTRYPOINT", '["flmc"]') in final
    # No instruction that would run as root follows that user.
    assert "RUN" not in [word for word, _ in final[final.index(("USER", user)) :]]
    for word, rest in steps:
        if word == "COPY" and "--from" not in rest:
            assert all((root / source).exists() for source in rest.split()[:-1])
    assert any("/source[mqtt]" in rest for _, rest in steps)
