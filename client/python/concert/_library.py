"""Finds and opens libconcert, and turns what its calls return into exceptions."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from . import _abi
from ._errors import Error, FailedPrecondition, Unavailable, error_of
from ._version import VERSION

__version__ = VERSION
_SONAME = "libconcert.so.0"

_lock = threading.Lock()
_opened: Any = None


class _PerThread(threading.local):
    """One concert_error per thread: calls of one thread do not nest."""

    def __init__(self) -> None:
        self.error = _abi.concert_error()
        self.reference = ctypes.byref(self.error)
        self.address = ctypes.addressof(self.error)


per_thread = _PerThread()


def library() -> Any:
    """libconcert, opened at the first call: $CONCERT_LIBRARY, else what the loader finds."""
    global _opened
    if _opened is None:
        with _lock:
            if _opened is None:
                _opened = open_library(os.environ.get("CONCERT_LIBRARY") or _SONAME)
    return _opened


def by_address(name: str) -> Any:
    """A function of the library that takes pointers as plain numbers, in half of ctypes' time."""
    function = library()[name]  # not the one that is an attribute, with its types
    function.restype, arguments = _abi.FUNCTIONS[name]
    function.argtypes = [ctypes.c_void_p] * len(arguments)
    return function


def open_library(path: str) -> Any:
    """Opens one file. Unavailable: it is not there. FailedPrecondition: another version."""
    try:
        opened = ctypes.CDLL(path)
    except OSError as error:
        raise Unavailable(f"cannot open {path}: {error}; install libconcert or set "
                          "CONCERT_LIBRARY to its file") from None
    _check_version(opened, path)
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(opened, name)
        function.restype = result
        function.argtypes = arguments
    return opened


def _check_version(opened: Any, path: str) -> None:
    """Before 1.0 a minor version may break the ABI, so major and minor must agree."""
    try:
        opened.concert_version.restype = ctypes.c_char_p
        version = opened.concert_version().decode()
    except AttributeError:
        raise FailedPrecondition(f"{path} is no libconcert: it has no concert_version") from None
    missing = [name for name in _abi.FUNCTIONS if not hasattr(opened, name)]
    if version.split(".")[:2] == __version__.split(".")[:2] and not missing:
        return
    lacks = f" and lacks {missing[0]}" if missing else ""
    raise FailedPrecondition(
        f"{path} is libconcert {version}{lacks}, this Python package is {__version__}; "
        f"install the same version of both, or set CONCERT_LIBRARY to a libconcert {__version__}")


def last_error(code: int) -> Error:
    """The exception for a call that returned `code` and was given per_thread's error."""
    return error_of(code, per_thread.error.message.decode("utf-8", "replace"))


def call(name: str, *arguments: Any) -> None:
    """Calls a function that fills in a concert_error, for what is not called often."""
    code = getattr(library(), name)(*arguments, per_thread.reference)
    if code:
        del arguments  # the traceback would keep their handles, and with one a closed session open
        raise last_error(code)
