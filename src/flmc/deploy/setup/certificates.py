"""X.509 certificates and revocation lists of a federation, as bytes: EC P-256, PEM.

A certificate names an identity and its purpose, client or broker. A client refuses a
certificate without the server purpose, so a device cannot pose as the broker.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from flmc.base.errors import MissingExtra

try:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise MissingExtra("certificates need the extra mqtt: pip install 'flmc[mqtt]'") from error

Purpose = Literal["client", "broker"]
"""Purpose of a certificate: to connect to the broker as a client, or to be the broker."""
CLIENT: Purpose = "client"
BROKER: Purpose = "broker"

_PURPOSES = {CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH, BROKER: ExtendedKeyUsageOID.SERVER_AUTH}
SKEW = timedelta(hours=1)
"""Time by which certificates and revocation lists are dated back: the clock of a small board may
be slow, and would take a newer one as not yet valid."""


class Pair(NamedTuple):
    """A certificate and its private key.

    Attributes
    ----------
    certificate, key
        Both as PEM; the key is not encrypted.
    serial
        Serial number of the certificate.
    begins, ends
        Validity, in UTC.
    """

    certificate: bytes
    key: bytes
    serial: int
    begins: datetime
    ends: datetime


class Signer:
    """An authority's key in memory, which signs certificates and revocation lists; made from the
    authority's certificate and key as PEM, with a ``ValueError`` if they do not fit each other."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self._certificate = x509.load_pem_x509_certificate(certificate)
        loaded = load_pem_private_key(key, password=None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key must be one of an elliptic curve")
        if loaded.public_key() != self._certificate.public_key():
            raise ValueError("the authority's key is not that of its certificate")
        self._key = loaded

    @property
    def ends(self) -> datetime:
        """End of the validity of the authority's certificate, and so of everything it signed."""
        return self._certificate.not_valid_after_utc

    def sign(
        self, identity: str, purpose: Purpose, names: Sequence[str], now: datetime, days: int
    ) -> Pair:
        """A new key with a certificate for ``identity``, the common name by which the broker
        knows a client; valid for ``days`` from ``now`` and never longer than the authority.
        ``names`` are the broker's hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        begins, ends = _span(now, min(now + timedelta(days=days), self.ends))
        builder = (
            _builder(identity, key, begins, ends)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([_PURPOSES[purpose]]), critical=False)
            .add_extension(self._issuer_key(), critical=False)
        )
        if names:
            alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
            builder = builder.add_extension(alternatives, critical=False)
        return _pair(builder.sign(self._key, SHA256()), key)

    def revocation_list(
        self, revoked: Mapping[int, datetime], number: int, updated: datetime
    ) -> bytes:
        """The list of revoked certificates as PEM, from times of revocation by serial number;
        ``number`` and ``updated`` must grow from list to list."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(updated)
            # The list is valid as long as the authority: a broker refuses every client once its
            # list has expired, and nobody would renew a list without changes.
            .next_update(self.ends)
            .add_extension(x509.CRLNumber(number), critical=False)
            .add_extension(self._issuer_key(), critical=False)
        )
        for serial, when in revoked.items():
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(when)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM)

    def _issuer_key(self) -> x509.AuthorityKeyIdentifier:
        """X.509 extension that names the authority's key, and so tells this authority from another
        one with the same name."""
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())


def new_authority(name: str, now: datetime, days: int) -> Pair:
    """Key and self-signed certificate of a new authority, valid for ``days`` from ``now``."""
    key = ec.generate_private_key(ec.SECP256R1())
    begins, ends = _span(now, now + timedelta(days=days))
    builder = (
        _builder(name, key, begins, ends)
        .issuer_name(_name(name))
        # A path length of 0 means that this authority can certify no further authorities.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _pair(builder.sign(key, SHA256()), key)


def _builder(
    name: str, key: ec.EllipticCurvePrivateKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    """Unsigned certificate with the fields that authority and roles have in common: name, public
    key, serial number and validity."""
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _span(now: datetime, ends: datetime) -> tuple[datetime, datetime]:
    """First and last moment of a certificate's validity, in whole seconds, the resolution of X.509;
    the first is dated back from ``now`` by :data:`SKEW`."""
    return (now - SKEW).replace(microsecond=0), ends.replace(microsecond=0)


def _name(common: str) -> x509.Name:
    """An X.509 name with a common name only."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """X.509 key usage: an authority's key signs certificates and revocation lists, any other key
    signs TLS handshakes only."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    """A host as certificates name it: an address, or a DNS name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    """A certificate and its private key as PEM, with serial number and validity."""
    return Pair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        certificate.serial_number,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )
