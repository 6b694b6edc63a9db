"""Sealing of answers, the messages with a device's symbols: encryption to the air's public key with
libsodium's sealed box.

Nobody between device and air, the broker's operator included, can read a symbol. A sealed box does
not name its sender: the broker vouches for the sender, because it lets a device write to its own
topic only.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any

from flmc.base.errors import InvalidSetting, MissingExtra

OVERHEAD = 48
"""Number of bytes that sealing adds to an answer."""
_KEY_BYTES = 32


class NotSealed(Exception):  # noqa: N818 (says what bytes are)
    """Raised for bytes that cannot be opened with the air's key: they were sealed to another key,
    not sealed at all, or changed."""


def new_keys() -> tuple[bytes, bytes]:
    """A new secret key and its public key, 32 bytes each, from the operating system's entropy."""
    secret = _library().PrivateKey.generate()
    return bytes(secret), bytes(secret.public_key)


def read_key(path: Path) -> bytes:
    """A key of 32 bytes from a file of hexadecimal or base64 text; raises ``InvalidSetting`` if the
    file holds none."""
    try:
        text = path.read_text().strip()
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"cannot read the key {str(path)!r}: {error}") from error
    for decode in (bytes.fromhex, _from_base64):
        try:
            key = decode(text)
        except (ValueError, binascii.Error):
            continue
        if len(key) == _KEY_BYTES:
            return key
    raise InvalidSetting(
        f"{str(path)!r} must hold a key of {_KEY_BYTES} bytes as hexadecimal or base64 text"
    )


def _from_base64(text: str) -> bytes:
    """The bytes in a base64 text; raises ``ValueError`` for any other text."""
    return base64.b64decode(text, validate=True)


class Seal:
    """Encrypts bytes to the air's public key of 32 bytes, so that only the air can read them."""

    def __init__(self, public: bytes) -> None:
        library = _library()
        self._box = library.SealedBox(library.PublicKey(public))

    def close(self, data: bytes) -> bytes:
        """The data, sealed to the air's key and 48 bytes longer; sealing the same data twice gives
        different bytes."""
        return bytes(self._box.encrypt(data))


class Opener:
    """Opens bytes sealed to the air's public key, with its secret key of 32 bytes."""

    def __init__(self, secret: bytes) -> None:
        library = _library()
        self._box = library.SealedBox(library.PrivateKey(secret))

    def open(self, sealed: bytes) -> bytes:
        """The data that were sealed; raises ``NotSealed`` if the bytes are not sealed to this key,
        or were changed."""
        try:
            return bytes(self._box.decrypt(sealed))
        except Exception as error:  # strangers choose the bytes, so any exception is possible
            raise NotSealed("not sealed to this key") from error


def _library() -> Any:
    """The module of PyNaCl with public-key boxes; raises ``MissingExtra`` if the extra ``mqtt`` is
    not installed."""
    try:
        from nacl import public
    except ImportError as error:
        raise MissingExtra("a federation needs the extra mqtt: pip install 'flmc[mqtt]'") from error
    return public
