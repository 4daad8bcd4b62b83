"""What can be wrong with a store, each told in one line."""

from __future__ import annotations

from assay.errors import InputError


class StoreError(InputError):
    """A store cannot be used: it is not there, is no store, or does not hold what was asked for."""


class StoreDamaged(StoreError):
    """A store is truncated or corrupt. It is left exactly as it is."""


class StoreUnwritable(StoreError):
    """A store cannot be written now: no permission, no room, or busy for too long. What it holds is intact."""


class StoreWarning(UserWarning):
    """A verdict could not be kept; it is none the less a verdict."""
