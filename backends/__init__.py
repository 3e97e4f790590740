"""The engines by URL scheme. Nothing of an engine is imported before one of its URLs is opened."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .base import ConfigurationError, Unavailable

if TYPE_CHECKING:
    from .base import Backend, Environment

SCHEMES: dict[str, str] = {
    "local": "distlock.backends.local:LocalBackend",
}


def backend_class(url: str) -> type[Backend]:
    """The class behind a URL. An engine whose client library does not import is unavailable, with the reason."""
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in SCHEMES:
        known = ", ".join(f"{name}:" for name in SCHEMES)
        raise ConfigurationError(f"no backend for {scheme + colon!r}; a backend URL begins with one of {known}")
    module, _, name = SCHEMES[scheme].partition(":")
    try:
        found: type[Backend] = getattr(import_module(module), name)
    except ImportError as error:
        raise Unavailable(f"the client library for {scheme}: does not import: {error}", permanent=True) from error
    return found


def open_backend(url: str, environment: Environment) -> Backend:
    return backend_class(url).from_url(url, environment)
