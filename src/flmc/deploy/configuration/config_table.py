"""A table of a TOML file, read name by name; what nobody asked for is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from flmc.base.errors import InvalidSetting


class ConfigTable:
    """A table of a configuration, which remembers what was read from it.

    Parameters
    ----------
    values
        Values by name.
    origin
        What messages call the table.
    folder
        Where files are that it names.
    """

    def __init__(self, values: dict[str, Any], origin: str, folder: Path) -> None:
        self._values, self.origin, self._folder = dict(values), origin, folder

    @classmethod
    def read(cls, path: Path | None) -> ConfigTable:
        """The table of a file; an empty one without a file.

        Parameters
        ----------
        path
            A TOML file; None: there is none.

        Raises
        ------
        InvalidSetting
            If it cannot be read, or is no TOML.
        """
        if path is None:
            return cls({}, "the configuration", Path())
        try:
            values = tomllib.loads(path.read_text())
        except OSError as error:
            raise InvalidSetting(f"cannot read {str(path)!r}: {error.strerror}") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidSetting(f"{str(path)!r} is not valid TOML: {error}") from error
        return cls(values, str(path), path.parent)

    def given(self, **options: Any) -> ConfigTable:
        """The table with options of the command line in place of its values.

        Parameters
        ----------
        **options
            Values by name; None: not given. Names of files among them are relative to the current
            directory.
        """
        chosen = {name: value for name, value in options.items() if value is not None}
        paths = {n: str(v.absolute()) if isinstance(v, Path) else v for n, v in chosen.items()}
        return ConfigTable({**self._values, **paths}, self.origin, self._folder)

    def take(self, name: str, default: Any = None) -> Any:
        """A value as it is, which is then read.

        Parameters
        ----------
        name, default
            Its name, and what it is if it is missing.
        """
        return self._values.pop(name, default)

    def text(self, name: str, default: str | None = None) -> str:
        """A text.

        Parameters
        ----------
        name, default
            Its name, and what it is if it is missing; None: it must be there.
        """
        value = self.take(name, default)
        if not isinstance(value, str) or not value:
            raise InvalidSetting(f"{self.origin}: {name} must be a text, got {value!r}")
        return value

    def optional_text(self, name: str) -> str | None:
        """A text, or None if it is missing.

        Parameters
        ----------
        name
            Its name.
        """
        return self.text(name) if name in self._values else None

    def number(self, name: str, default: float | None = None) -> float:
        """A number.

        Parameters
        ----------
        name, default
            Its name, and what it is if it is missing; None: it must be there.
        """
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidSetting(f"{self.origin}: {name} must be a number, got {value!r}")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        """A number, or None if it is missing.

        Parameters
        ----------
        name
            Its name.
        """
        return self.number(name) if name in self._values else None

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number from 0.

        Parameters
        ----------
        name, default
            Its name, and what it is if it is missing; None: it must be there.
        """
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidSetting(
                f"{self.origin}: {name} must be a whole number from 0, got {value!r}"
            )
        return value

    def optional_count(self, name: str) -> int | None:
        """A whole number from 0, or None if it is missing.

        Parameters
        ----------
        name
            Its name.
        """
        return self.count(name) if name in self._values else None

    def flag(self, name: str) -> bool:
        """Yes or no; no if it is missing.

        Parameters
        ----------
        name
            Its name.
        """
        value = self.take(name, False)
        if not isinstance(value, bool):
            raise InvalidSetting(f"{self.origin}: {name} must be true or false, got {value!r}")
        return value

    def file(self, name: str, default: str | None = None) -> Path:
        """A file or directory, relative to the configuration.

        Parameters
        ----------
        name, default
            Its name, and what it is if it is missing; None: it must be there.
        """
        return self._folder / self.text(name, default)

    def optional_file(self, name: str) -> Path | None:
        """A file or directory, or None if it is missing.

        Parameters
        ----------
        name
            Its name.
        """
        return self.file(name) if name in self._values else None

    def words(self, name: str) -> tuple[str, ...] | None:
        """A list of texts, or None if it is missing.

        Parameters
        ----------
        name
            Its name.
        """
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidSetting(f"{self.origin}: {name} must be a list of texts, got {value!r}")
        return tuple(value)

    def table(self, name: str) -> ConfigTable | None:
        """A table within, or None if it is missing.

        Parameters
        ----------
        name
            Its name.
        """
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InvalidSetting(f"{self.origin}: {name} must be a table, got {value!r}")
        return ConfigTable(value, f"{self.origin} [{name}]", self._folder)

    def names(self) -> tuple[str, ...]:
        """Names of what has not been read yet."""
        return tuple(self._values)

    def end(self) -> None:
        """Refuse what nobody asked for: a name that is misspelt must not be silently ignored."""
        if self._values:
            raise InvalidSetting(f"{self.origin}: there is no setting {next(iter(self._values))!r}")
