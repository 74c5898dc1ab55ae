"""Says which argument of a call is of a wrong kind. Calls that are right pay nothing for it."""

from __future__ import annotations

import functools
import inspect
from enum import IntEnum
from typing import Any, Callable, Iterator, TypeVar

from ._errors import InvalidArgument
from ._tensor import Buffer, Tensor

Kind = TypeVar("Kind", bound=IntEnum)


def kind_of(name: str, value: Any, kind: type[Kind]) -> Kind:
    """The member of an enum of the ABI, or InvalidArgument with all of them."""
    try:
        return kind(value)
    except ValueError:
        raise no_kind(name, value, kind) from None


def no_kind(name: str, value: Any, kind: type[IntEnum]) -> InvalidArgument:
    members = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
    return InvalidArgument(f"{name} is {value!r}; it must be one of {members} (of concert)")


def naming_operands(make: Callable[..., None]) -> Callable[..., None]:
    """`make`, an __init__, which says what is no tensor when it fails for that."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            make(self, *args, **kwargs)
        except (AttributeError, TypeError, ValueError):
            for name, value, allowed in _operands(signature, (self, *args), kwargs):
                if not isinstance(value, allowed):
                    raise TypeError(_no_tensor(name, value, Buffer in allowed)) from None
            raise

    return made


def _operands(signature: inspect.Signature, args: Any,
              kwargs: Any) -> Iterator[tuple[str, Any, tuple[type, ...]]]:
    """Names and values of those that may be tensors, and of what types each may be."""
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:  # one is missing, which Python says itself
        return
    for name, value in given.items():
        parameter = signature.parameters[name]
        words = str(parameter.annotation).split(" | ")  # self has none
        if "Tensor" not in words:
            continue
        allowed = tuple(kind for word, kind in (
            ("Tensor", Tensor), ("Buffer", Buffer), ("None", type(None)), ("float", float),
            ("float", int), ("int", int)) if word in words)
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from ((f"{name}[{i}]", one, allowed) for i, one in enumerate(value))
        else:
            yield name, value, allowed


def _no_tensor(name: str, value: Any, or_buffer: bool) -> str:
    kind = type(value)
    said = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    if (shape := getattr(value, "shape", None)) is not None:
        said = f"{said} of shape {tuple(shape)}"
    wanted = "concert.Tensor or concert.Buffer" if or_buffer else "concert.Tensor"
    return (f"{name} is {'None' if value is None else f'a {said}'}; it must be a {wanted}: "
            "Session.array() copies an array of the host into one, Session.import_array() makes "
            "one of an array on a GPU")
