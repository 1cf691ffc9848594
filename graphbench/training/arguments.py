"""Check options given in Python against the signature of a constructor before it is called."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from graphbench.errors import BadInput, UnknownName

#: Plain types -> their description for users, and the accepted classes.
_PLAIN: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (bool, np.bool_)),
    int: ("an integer", (Integral,)),
    float: ("a number", (Real,)),
    str: ("text", (str, os.PathLike)),  # code that opens paths accepts both
    NoneType: ("None", (NoneType,)),
}


def parameters(cls: type) -> list[str]:
    """Return the names of a class's options, including those it passes to its bases, but not `spec`.

    Examples:
        >>> from graphbench.benchmarks import CSL
        >>> [name for name in parameters(CSL) if name in ("self", "batch_size")]
        ['batch_size']
    """
    signatures = (inspect.signature(base.__init__) for base in _constructors(cls))  # type: ignore[misc]
    every = (one for signature in signatures for one in signature.parameters.values())
    named = dict.fromkeys(one.name for one in every if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))
    return [name for name in named if name not in ("self", "spec")]


def type_hints(cls: type) -> dict[str, Any]:
    """Return the annotation of each option of a class, if it can be read.

    Examples:
        >>> from graphbench.nn import HeadConfig
        >>> type_hints(HeadConfig)["num_layers"]
        <class 'int'>
    """
    collected: dict[str, Any] = {}
    for base in _constructors(cls):
        try:
            hints = get_type_hints(base.__init__)  # type: ignore[misc]
        except Exception:  # names that exist only for type checkers
            hints = {}
        collected = {name: hint for name, hint in hints.items() if name != "return"} | collected
    return collected


def check_options(argument: str, cls: type, options: object) -> None:
    """Refuse options that a class does not accept, and plain values that do not have the annotated type.

    Options annotated as anything but numbers, text, choices and unions of these are left to the constructor.
    `argument` is the argument that contains the options, as a user writes it.

    Examples:
        >>> from graphbench.nn import HeadConfig
        >>> check_options("head", HeadConfig, {"num_layers": 3})
        >>> check_options("head", HeadConfig, {"num_layers": "3"})
        Traceback (most recent call last):
        graphbench.errors.BadInput: head: num_layers must be an integer, but got '3'.
    """
    if not isinstance(options, Mapping):
        raise BadInput(f"{argument} must be a mapping of options, such as {{'name': value}}, but got {options!r}.")
    accepted, hints = parameters(cls), type_hints(cls)
    for name, value in options.items():
        # A class with `**options` up to its last base may accept options that it does not name.
        if name not in accepted and not all(map(_hands_on, _constructors(cls))):
            raise UnknownName(f"option of {cls.__name__} in {argument}", str(name), accepted)
        if name in hints and not _fits(value, hints[name]):
            raise BadInput(f"{argument}: {name} must be {_in_words(hints[name])}, but got {value!r}.")


def _constructors(cls: type) -> Iterator[type]:
    """Yield the class and, as long as options are passed on by name, its bases."""
    for base in cls.__mro__:
        if "__init__" in base.__dict__:
            yield base
            if not _hands_on(base):
                return


def _hands_on(base: type) -> bool:
    kinds = [parameter.kind for parameter in inspect.signature(base.__init__).parameters.values()]  # type: ignore[misc]
    return inspect.Parameter.VAR_KEYWORD in kinds


def _fits(value: object, hint: Any) -> bool:
    """Tell whether a value has its annotated plain type; True if the annotation is not a plain type."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in get_args(hint))
    if hint not in _PLAIN:
        return True
    flag = isinstance(value, (bool, np.bool_))  # bools are integers to Python, but not to users
    return isinstance(value, _PLAIN[hint][1]) and (hint is bool or not flag)


def _in_words(hint: Any) -> str:
    """Format an annotation in words.

    Examples:
        >>> _in_words(int | None), _in_words(Literal["mean", "max"])
        ('an integer or None', "one of 'mean', 'max'")
    """
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(_in_words, get_args(hint)))
    if origin is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    return _PLAIN[hint][0]
