"""Verdicts over HTTP: a bounded queue before a pool of judges, and a client. Needs the extra `serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.serve.app import create_app
    from assay.serve.client import Client, ServiceError
    from assay.serve.settings import Settings, Tenant

_HOMES = {"Client": "client", "ServiceError": "client", "Settings": "settings", "Tenant": "settings",
          "create_app": "app"}
__all__ = ["Client", "ServiceError", "Settings", "Tenant", "create_app"]


def __getattr__(name: str) -> Any:
    """The public names, imported when first asked for."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"assay.serve.{_HOMES[name]}"), name)
