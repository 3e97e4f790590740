"""distlock: flock(1) for a fleet. Importing this loads nothing else; its names are loaded when they are used."""

__version__ = "0.1.0"

TYPE_CHECKING = (
    False  # type checkers know it by its name; the module typing would take ten times as long as all of this
)
if TYPE_CHECKING:
    from .backends.base import Busy as Busy
    from .backends.base import ConfigurationError as ConfigurationError
    from .backends.base import DistlockError as DistlockError
    from .backends.base import LeaseLost as LeaseLost
    from .backends.base import OtherHolders as OtherHolders
    from .backends.base import Refused as Refused
    from .backends.base import Unavailable as Unavailable
    from .errors import InternalError as InternalError
    from .errors import LeaseExpiring as LeaseExpiring
    from .errors import UsageError as UsageError
    from .library.hold import Hold as Hold
    from .library.hold import hold as hold
    from .library.lease import Lease as Lease
    from .library.lease import Lost as Lost
else:
    _HOME = {
        "Busy": "distlock.backends.base",
        "ConfigurationError": "distlock.backends.base",
        "DistlockError": "distlock.backends.base",
        "Hold": "distlock.library.hold",
        "InternalError": "distlock.errors",
        "Lease": "distlock.library.lease",
        "LeaseExpiring": "distlock.errors",
        "LeaseLost": "distlock.backends.base",
        "Lost": "distlock.library.lease",
        "OtherHolders": "distlock.backends.base",
        "Refused": "distlock.backends.base",
        "Unavailable": "distlock.backends.base",
        "UsageError": "distlock.errors",
        "hold": "distlock.library.hold",
    }

    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module 'distlock' has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = found = getattr(import_module(_HOME[name]), name)
        return found

    def __dir__():
        return [*globals(), *_HOME]
