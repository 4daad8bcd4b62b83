"""Signed envelopes: DSSE with Ed25519, as in-toto attestations travel.

The signature is over the pre-authentication encoding of type and payload (DSSE v1):
`DSSEv1 LEN(type) type LEN(body) body`. An envelope is written in one way only, and read in that way only, so that
no byte of it can be changed without notice, also none that the signature does not cover.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
PASSWORD_VARIABLE = "ASSAY_KEY_PASSWORD"
"""Environment variable with the password of a private key."""
LARGEST = 16 << 20


class NotValid(Exception):
    """An envelope that does not hold what it says, with the reason in words."""


def need_cryptography() -> None:
    """Raise InputError, which names the extra, where signatures cannot be made."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise InputError("signatures need the package `cryptography`", "", "pip install 'assay[certify]'") from None


def pae(payload_type: str, body: bytes) -> bytes:
    """The bytes that are signed."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(body), body)


def sign(statement: Any, key: Ed25519PrivateKey) -> str:
    """A statement, as JSON data, in a signed envelope."""
    body = compact(statement)
    signature = key.sign(pae(PAYLOAD_TYPE, body))
    return _written(body, key_id(key.public_key()), signature)


def opened(text: bytes, key: Ed25519PublicKey) -> dict[str, Any]:
    """The statement of an envelope that this key signed.

    Raises NotValid when it was not, or when a single byte is not as it was written.
    """
    from cryptography.exceptions import InvalidSignature

    if len(text) > LARGEST:
        raise NotValid("it is too large to be a certificate")
    try:
        data = json.loads(text, object_pairs_hook=_once)
        body = base64.b64decode(data["payload"], validate=True)
        signature = base64.b64decode(data["signatures"][0]["sig"], validate=True)
        key_name = data["signatures"][0]["keyid"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, binascii.Error):
        raise NotValid("it is no signed envelope") from None
    if not isinstance(key_name, str) or data.get("payloadType") != PAYLOAD_TYPE:
        raise NotValid("it is no signed envelope of an in-toto statement")
    try:
        key.verify(signature, pae(PAYLOAD_TYPE, body))
    except InvalidSignature:
        other = "" if key_name == key_id(key) else "; it names another key"
        raise NotValid(f"the signature is not of this key over this content{other}") from None
    if text != _written(body, key_id(key), signature).encode():
        raise NotValid("the envelope was changed after it was written")
    try:
        statement = json.loads(body, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise NotValid("what was signed is no JSON") from None
    if not isinstance(statement, dict):
        raise NotValid("what was signed is no statement")
    return statement


def _written(body: bytes, key_name: str, signature: bytes) -> str:
    data = {"payloadType": PAYLOAD_TYPE, "payload": base64.b64encode(body).decode(),
            "signatures": [{"keyid": key_name, "sig": base64.b64encode(signature).decode()}]}
    return json.dumps(data, indent=1) + "\n"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def compact(data: Any) -> bytes:
    """JSON data as its one form in bytes: sorted keys, no spaces, UTF-8."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def key_id(key: Ed25519PublicKey) -> str:
    """SHA-256 of the public key's DER form, as hexadecimal."""
    from cryptography.hazmat.primitives import serialization

    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def make_keys(private: Path, public: Path) -> str:
    """Write a new pair of keys as PEM, the private one for its owner alone; the id of the key.

    With `ASSAY_KEY_PASSWORD` set, the private key is encrypted with it.

    Raises InputError when one of the files exists or cannot be written.
    """
    need_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    password = os.environ.get(PASSWORD_VARIABLE, "")
    protection: serialization.KeySerializationEncryption = (
        serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption())
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
    shown = key.public_key().public_bytes(serialization.Encoding.PEM,
                                          serialization.PublicFormat.SubjectPublicKeyInfo)
    for path, data, mode in ((private, secret, 0o600), (public, shown, 0o644)):
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
        except FileExistsError:
            raise InputError("there is a file of that name, and a key is never replaced", str(path),
                             "give another name") from None
        except OSError as error:
            raise InputError(f"cannot write the key: {error.strerror or error}", str(path),
                             "give a file in a folder that can be written") from None
    return key_id(key.public_key())


def private_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key. Raises InputError."""
    need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    password = os.environ.get(PASSWORD_VARIABLE, "").encode() or None
    data = _read(path)
    try:
        key = load_pem_private_key(data, password)
    except TypeError:
        # a password for a key without one is no fault; one that is missing is
        try:
            key = load_pem_private_key(data, None)
        except (TypeError, ValueError):
            raise InputError("the key has a password", str(path), f"set {PASSWORD_VARIABLE}") from None
    except ValueError:
        raise InputError("no private key in PEM form, or another password", str(path),
                         "make one with `assay keygen`") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError("not an Ed25519 key", str(path), "make one with `assay keygen`")
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """Read a public key. Raises InputError."""
    need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_read(path))
    except ValueError:
        raise InputError("no public key in PEM form", str(path), "give the .pub.pem file of the signer") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError("not an Ed25519 key", str(path), "give the .pub.pem file of the signer")
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the key: {error.strerror or error}", str(path), "check the path") from None
