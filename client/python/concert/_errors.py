"""Errors: a code and a sentence, and a class for each code, so that `except` can choose."""

from __future__ import annotations

from ._abi import Code


class Error(Exception):
    """What went wrong.

    `code` is the ABI's code and `message` its sentence, which names the field and the value.
    """

    code: Code = Code.INTERNAL

    def __init__(self, message: str, code: Code | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class Cancelled(Error):
    """Drained, or its session or communicator went away."""

    code = Code.CANCELLED


class InvalidArgument(Error, ValueError):
    """A bad field; the sentence names it."""

    code = Code.INVALID_ARGUMENT


class DeadlineExceeded(Error, TimeoutError):
    """A wait or a missing rank outlasted its bound."""

    code = Code.DEADLINE_EXCEEDED


class NotFound(Error):
    """An unknown or released handle."""

    code = Code.NOT_FOUND


class PermissionDenied(Error):
    """A handle of another user."""

    code = Code.PERMISSION_DENIED


class ResourceExhausted(Error):
    """A quota, a full table or a full ring."""

    code = Code.RESOURCE_EXHAUSTED


class FailedPrecondition(Error):
    """The right request in the wrong state, a child after fork() among them."""

    code = Code.FAILED_PRECONDITION


class Unimplemented(Error):
    """Not there on this device or in this build."""

    code = Code.UNIMPLEMENTED


class Internal(Error):
    """The device failed."""

    code = Code.INTERNAL


class Unavailable(Error):
    """No daemon, a closed session, or a daemon that drains or died: open a new session."""

    code = Code.UNAVAILABLE


_CLASSES = {cls.code: cls for cls in Error.__subclasses__()}


def error_of(code: int, message: str) -> Error:
    """The exception for a code of the ABI, which may be newer than this package."""
    try:
        known = Code(code)
    except ValueError:
        return Error(f"code {code}: {message}")
    return _CLASSES.get(known, Error)(message, known)
