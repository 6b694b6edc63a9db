"""Configurations of device, air and server, read from TOML files and command-line options; unknown
settings are refused."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.deploy.device.consent import Budget, Rules
from flmc.models.distributions import Normal
from flmc.settings.assembly import read_plan
from flmc.wire.federation import Federation
from flmc.wire.mqtt import Credentials, Mqtt
from flmc.wire.topics import check_run


@dataclass(frozen=True)
class DeviceConfiguration:
    """Set-up of a device's process: its owner's decisions, its data, its files and its broker.

    Attributes
    ----------
    rules
        Decisions of its owner: model, privacy budget, limits of theta and amplitude.
    data, reading
        File of its examples, and options for :func:`flmc.data.reading.read`.
    air_key, journal
        Public key of the air, and the directory of the journal.
    run
        Name of the run; None: the only one at the broker.
    broker
        Broker and credentials.
    """

    rules: Rules
    data: Path
    reading: Mapping[str, Any]
    air_key: Path
    journal: Path
    run: str | None
    broker: Mqtt


@dataclass(frozen=True)
class AirConfiguration:
    """Set-up of the air's process: its run, its key, its files, its channel and its broker.

    Attributes
    ----------
    federation
        The run.
    air_key, journal
        Secret key of the air, and the directory of the journal.
    receiver, alpha
        File with a radio receiver's measurements (None: the channel is software), and the
        probability that the receiver's noise is weaker than its bound (None: the default).
    broker
        Broker and credentials.
    """

    federation: Federation
    air_key: Path
    journal: Path
    receiver: Path | None
    alpha: float | None
    broker: Mqtt


@dataclass(frozen=True)
class ServerConfiguration:
    """Set-up of the server's process: its run, its record, the chain's start and its broker.

    Attributes
    ----------
    federation
        The run.
    record
        Directory of the record.
    patience
        Seconds for which round 1 waits for all devices; then a quorum is enough.
    prior_mean, prior_sd
        Mean and standard deviation of the normal law from which each entry of the chain's start is
        drawn, unless the plan starts it at zero.
    prior
        Prior of the model's parameters, which the server needs for an answer; None: the one that
        the name of the model implies, if any.
    broker
        Broker and credentials.
    """

    federation: Federation
    record: Path
    patience: float
    prior_mean: float
    prior_sd: float
    prior: Normal | None
    broker: Mqtt


def read_device(
    path: Path | None, broker: str, tls: Path | None, **options: Any
) -> DeviceConfiguration:
    """The configuration of a device from a TOML file (None: options only), overridden by
    command-line ``options``. ``broker`` is the broker's address; ``tls`` is a directory of
    certificates (None: those that the file names). Raises ``InvalidSetting`` for a missing, wrong
    or unknown setting."""
    given = {name: value for name, value in options.items() if name != "epsilon"}
    table = ConfigTable.read(path).given(**given)
    budget = table.table("budget") or ConfigTable({}, "[budget]", Path())
    if options.get("epsilon") is not None:
        budget = budget.given(epsilon=options["epsilon"])
    rules = Rules(
        device=table.count("id"),
        model=table.text("model", "linear"),
        budget=Budget(
            budget.number("epsilon", Budget.epsilon),
            budget.number("delta", Budget.delta),
            budget.count("runs", Budget.runs),
            budget.text("neighbouring", Budget.neighbouring),
            budget.text("relation", Budget.relation),
        ),
        largest_theta=table.number("largest_theta", Rules.largest_theta),
        largest_amplitude=table.number("largest_amplitude", Rules.largest_amplitude),
        accept_data_dependent=table.flag("accept_data_dependent"),
    )
    budget.end()
    reading: dict[str, Any] = {
        "target": table.optional_text("target"),
        "features": table.words("features"),
        "classes": table.words("classes"),
        "missing": table.text("missing", "refuse"),
    }
    categories, scales = table.table("categories"), table.table("standardise")
    if categories is not None:
        reading["categories"] = {name: categories.words(name) for name in categories.names()}
    if scales is not None:
        reading["standardise"] = {name: _pair(scales, name) for name in scales.names()}
    run = table.optional_text("run")
    configuration = DeviceConfiguration(
        rules,
        table.file("data"),
        reading,
        table.file("air_key", "air.pub"),
        table.file("journal", f"device-{rules.device}-journal"),
        None if run is None else check_run(run),
        _broker(table, broker, tls),
    )
    table.end()
    return configuration


def read_air(path: Path, broker: str, tls: Path | None, **options: Any) -> AirConfiguration:
    """The configuration of the air from a TOML file, overridden by command-line ``options``.
    ``broker`` is the broker's address; ``tls`` is a directory of certificates (None: those that the
    file names). Raises ``InvalidSetting`` for a missing, wrong or unknown setting."""
    table = ConfigTable.read(path).given(**options)
    configuration = AirConfiguration(
        _federation(table),
        table.file("air_key", "air.key"),
        table.file("journal", "journal"),
        table.optional_file("receiver"),
        table.optional_number("alpha"),
        _broker(table, broker, tls),
    )
    table.end()
    return configuration


def read_server(path: Path, broker: str, tls: Path | None, **options: Any) -> ServerConfiguration:
    """The configuration of the server from a TOML file, overridden by command-line ``options``.
    ``broker`` is the broker's address; ``tls`` is a directory of certificates (None: those that the
    file names). Raises ``InvalidSetting`` for a missing, wrong or unknown setting."""
    table = ConfigTable.read(path).given(**options)
    configuration = ServerConfiguration(
        _federation(table),
        table.file("record", "record"),
        table.number("patience_seconds", 60.0),
        table.number("prior_mean", 0.0),
        table.number("prior_sd", 1.0),
        _prior(table),
        _broker(table, broker, tls),
    )
    table.end()
    return configuration


def read_federation(path: Path) -> Federation:
    """The run that a file ``federation.toml`` describes: its name, its plan, and the settings on
    which all roles agree."""
    table = ConfigTable.read(path)
    federation = _federation(table)
    table.end()
    return federation


def credentials_in(directory: Path) -> Credentials:
    """Paths of the authority's certificate ``ca.pem`` and of a role's ``cert.pem`` and ``key.pem``
    in a directory."""
    return Credentials(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")


class ConfigTable:
    """A table of settings from which every value is removed when it is read, so that :meth:`end`
    finds unknown names; ``origin`` names the table in error messages, and file names in it are
    relative to ``folder``."""

    def __init__(self, values: dict[str, Any], origin: str, folder: Path) -> None:
        self._values, self.origin, self._folder = dict(values), origin, folder

    @classmethod
    def read(cls, path: Path | None) -> ConfigTable:
        """The settings of a TOML file, or an empty table for None; raises ``InvalidSetting`` if the
        file cannot be read."""
        if path is None:
            return cls({}, "the configuration", Path())
        try:
            # A number such as 1e400 must not be read as inf, which as a budget means that there is
            # no limit.
            values = tomllib.loads(path.read_text(), parse_float=checks.number_in)
        except OSError as error:
            raise InvalidSetting(f"cannot read {str(path)!r}: {error.strerror}") from error
        except RecursionError as error:
            raise InvalidSetting(f"{str(path)!r} is nested too deeply") from error
        # Reasons for a ValueError: invalid TOML, an invalid encoding, or a number that is too
        # large.
        except ValueError as error:
            raise InvalidSetting(f"{str(path)!r} is not valid TOML: {error}") from error
        return cls(values, str(path), path.parent)

    def given(self, **options: Any) -> ConfigTable:
        """A copy of the table in which command-line options replace values from the file; an option
        of None was not given. Paths among the options are relative to the current directory."""
        chosen = {name: value for name, value in options.items() if value is not None}
        paths = {n: str(v.absolute()) if isinstance(v, Path) else v for n, v in chosen.items()}
        return ConfigTable({**self._values, **paths}, self.origin, self._folder)

    def take(self, name: str, default: Any = None) -> Any:
        """Remove and return the value of the setting ``name``, of any type; ``default`` if it is
        missing."""
        return self._values.pop(name, default)

    def text(self, name: str, default: str | None = None) -> str:
        """Remove and return the setting ``name``, a text that is not empty; raises
        ``InvalidSetting`` if it is anything else, or missing without a default."""
        value = self.take(name, default)
        if not isinstance(value, str) or not value:
            raise InvalidSetting(f"{self.origin}: {name} must be a text, got {value!r}")
        return value

    def optional_text(self, name: str) -> str | None:
        """Remove and return the setting ``name``, a text that is not empty; None if it is
        missing."""
        return self.text(name) if name in self._values else None

    def number(self, name: str, default: float | None = None) -> float:
        """Remove and return the setting ``name``, a number; raises ``InvalidSetting`` if it is
        anything else, or missing without a default."""
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidSetting(f"{self.origin}: {name} must be a number, got {value!r}")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """Remove and return the setting ``name``, a number; None if it is missing."""
        return self.number(name) if name in self._values else None

    def count(self, name: str, default: int | None = None) -> int:
        """Remove and return the setting ``name``, a whole number from 0; raises ``InvalidSetting``
        if it is anything else, or missing without a default."""
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidSetting(
                f"{self.origin}: {name} must be a whole number from 0, got {value!r}"
            )
        return value

    def optional_count(self, name: str) -> int | None:
        """Remove and return the setting ``name``, a whole number from 0; None if it is missing."""
        return self.count(name) if name in self._values else None

    def flag(self, name: str) -> bool:
        """Remove and return the setting ``name``, true or false; False if it is missing."""
        value = self.take(name, False)
        if not isinstance(value, bool):
            raise InvalidSetting(f"{self.origin}: {name} must be true or false, got {value!r}")
        return value

    def file(self, name: str, default: str | None = None) -> Path:
        """Remove the setting ``name``, a path relative to the table's folder, and return the whole
        path, which need not exist; raises ``InvalidSetting`` if it is missing without a default."""
        return self._folder / self.text(name, default)

    def optional_file(self, name: str) -> Path | None:
        """Remove the setting ``name``, a path relative to the table's folder, and return the whole
        path, which need not exist; None if the setting is missing."""
        return self.file(name) if name in self._values else None

    def words(self, name: str) -> tuple[str, ...] | None:
        """Remove and return the setting ``name``, a list of texts; None if it is missing."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidSetting(f"{self.origin}: {name} must be a list of texts, got {value!r}")
        return tuple(value)

    def table(self, name: str) -> ConfigTable | None:
        """Remove and return the setting ``name``, a table within this one; None if it is
        missing."""
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InvalidSetting(f"{self.origin}: {name} must be a table, got {value!r}")
        return ConfigTable(value, f"{self.origin} [{name}]", self._folder)

    def names(self) -> tuple[str, ...]:
        """Names of the settings that were not read yet."""
        return tuple(self._values)

    def end(self) -> None:
        """Raise ``InvalidSetting`` if the table still has values that nobody read: a misspelt name
        must not be silently ignored."""
        if self._values:
            raise InvalidSetting(f"{self.origin}: there is no setting {next(iter(self._values))!r}")


def _prior(table: ConfigTable) -> Normal | None:
    """The prior in the table ``[prior]`` of a server's configuration, with ``mean`` (0 unless
    stated) and ``sd``, a number or a list with one for each entry; None without that table."""
    inner = table.table("prior")
    if inner is None:
        return None
    both = {}
    for name, default in (("mean", 0.0), ("sd", None)):
        value = inner.take(name, default)
        numbers = value if isinstance(value, list) and value else [value]
        if any(isinstance(each, bool) or not isinstance(each, int | float) for each in numbers):
            raise InvalidSetting(
                f"{inner.origin}: {name} must be a number, or a list of numbers, got {value!r}"
            )
        both[name] = np.array(value, dtype=np.float64) if numbers is value else float(value)
    inner.end()
    return Normal(**both)


def _pair(table: ConfigTable, name: str) -> tuple[float, float]:
    """Public centre and scale by which the feature ``name`` is standardised. Both are read, and so
    removed, from ``table``, the table ``[standardise]`` of a device's configuration."""
    value = table.take(name)
    if not (isinstance(value, list) and len(value) == 2):
        raise InvalidSetting(f"{table.origin}: {name} must be [centre, scale], got {value!r}")
    pair = ConfigTable({"centre": value[0], "scale": value[1]}, table.origin, Path())
    return pair.number("centre"), pair.number("scale")


def _federation(table: ConfigTable) -> Federation:
    """The federation that a role's configuration describes: either in the file named by its setting
    ``federation``, or directly among its settings."""
    inner = table.optional_file("federation")
    source = table if inner is None else ConfigTable.read(inner)
    plan = read_plan(source.file("plan", "plan.json"))
    given = {
        name: source.optional_count(name)
        for name in ("quorum", "slot_ms", "deadline_ms", "grid_bits")
    }
    run, model = source.text("run"), source.text("model", "linear")
    names = source.words("names") or ()
    if inner is not None:
        source.end()
    return Federation.of(run, plan, model=model, names=names, **given)


def _broker(table: ConfigTable, url: str, tls: Path | None) -> Mqtt:
    """The broker at the address ``url`` with a role's credentials, from the directory ``tls``
    (None: from the configuration's table ``[tls]``); without either there are no credentials."""
    # The table [tls] is read even if a directory of certificates replaces it, because ``end``
    # refuses tables that nobody read.
    files = table.table("tls")
    if tls is not None:
        return Mqtt(url, credentials_in(tls))
    if files is None:
        return Mqtt(url)
    credentials = Credentials(
        files.file("ca", "ca.pem"), files.file("cert", "cert.pem"), files.file("key", "key.pem")
    )
    files.end()
    return Mqtt(url, credentials)
