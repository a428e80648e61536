"""Declares options and topic properties, each once: its name, type, default, check and documentation.

`option` makes a field of a dataclass. The class is then the list of its options: `options_of` returns them to code that
parses text, `taken` makes the class from a Python caller's arguments, `described` is for code that documents them.
Topic properties (`sparklog.log.config`), the options of a read and of a write (`sparklog.spark`), and the arguments
that all jobs take (`sparklog.topic.selection`, `sparklog.jobs.run.options`) are declared with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

import javaproperties

from sparklog.errors import InvalidOptionError

LONG_MAX: Final = (1 << 63) - 1
UNLIMITED: Final = -1

AT_APPEND: Final = "append"
AT_CLEAN: Final = "clean"
AT_COMMIT: Final = "commit"
AT_READ: Final = "read"

_SHOWN_MAX: Final = 200
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{0,19}\.?[0-9]{1,19}(e[+-]?[0-9]{1,3})?")

LOCAL_RETENTION: Final = frozenset(
    {"local.retention.bytes", "local.retention.ms", "log.local.retention.bytes", "log.local.retention.ms"}
)
"""Properties that limit the local part of a log whose older segments are in remote storage."""

_TRUTH: Final = ("true or false", r"(?i)true|false")
_REPLICAS: Final = ("*, or pairs such as 0:1,1:2 of a partition and a broker", r"\*|(\d+:\d+(,\d+:\d+)*)?")
# Topic properties that concern a running cluster, with the values that a broker takes, in words and as a pattern: a log
# written without a broker has no use for them.
BROKER_ONLY: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(LOCAL_RETENTION, ("a whole number, at least -2", r"-[12]|\+?\d{1,19}")),
    "follower.replication.throttled.replicas": _REPLICAS,
    "leader.replication.throttled.replicas": _REPLICAS,
    "message.downconversion.enable": _TRUTH,
    "min.insync.replicas": ("a whole number, at least 1", r"\+?0*[1-9]\d{0,9}"),
    "remote.log.copy.disable": _TRUTH,
    "remote.log.delete.on.disable": _TRUTH,
    "remote.storage.enable": _TRUTH,
    "unclean.leader.election.enable": _TRUTH,
}

DeclaringT = TypeVar("DeclaringT")


class Spelling(NamedTuple):
    """Another name of an option. Values under that name are multiplied by ``unit``."""

    name: str
    unit: int = 1


class Described(NamedTuple):
    """An option as its documentation shows it.

    ``bound`` describes the values that it takes, and ``acts`` the places where it has an effect.
    """

    name: str
    default: str
    bound: str
    doc: str
    acts: tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """One option, as `option` declares it; the parameters are described there."""

    name: str
    default: Any
    kind: type
    doc: str
    at_least: float
    at_most: float
    choices: tuple[str, ...]
    ignores_case: bool
    synonyms: Mapping[str, str]
    parser: Callable[[str, Any], Any] | None
    too_low: str
    takes: str
    is_required: bool
    spellings: tuple[Spelling, ...]
    acts: tuple[str, ...]
    idle: str

    @property
    def bound(self) -> str:
        """The values that the option takes, in words."""
        if self.takes:
            return self.takes
        if self.kind is bool:
            return "true or false"
        if self.kind is tuple:
            return f"any of {', '.join(self.choices)}, each once, with commas between"
        if self.kind is str:
            return " or ".join(self.choices) if len(self.choices) < 3 else f"one of {', '.join(self.choices)}"
        kind = "a whole number" if self.kind is int else "a number"
        return f"{kind}, at least {self.at_least} and at most {self.at_most}"

    @property
    def default_text(self) -> str:
        """The default as documentation shows it."""
        return "required" if self.is_required else self.text(self.default)

    def parse(self, text: str, spelling: Spelling | None = None) -> Any:
        """Parse the text given under one of the option's names.

        Raises
        ------
        InvalidOptionError
            The option does not take such a value.
        """
        if self.parser is not None:
            return self.parser(self.name, text)
        given, value = spelling or Spelling(self.name), self._converted(text.strip())
        if given.unit != 1 and value not in (None, UNLIMITED):
            value *= given.unit
        if not self.allows(value):
            raise InvalidOptionError(self._refusal(given, value, text))
        return value

    def take(self, value: Any) -> Any:
        """Return the value that a caller of Python gives, also None where that is the default; check its bound.

        Raises
        ------
        InvalidOptionError
            The option does not take such a value.
        """
        if value is None and self.default is None:
            return None
        if self.parser is not None:
            return self.parser(self.name, value)
        if self.kind in (int, float) and value < self.at_least:
            raise InvalidOptionError(f"{self.name} is {value}, and must be at least {self.at_least}")
        if self.choices and not self.allows(value):
            raise InvalidOptionError(f"{self.name} is {value!r}, and must be {self.bound}")
        return value

    def allows(self, value: Any) -> bool:
        """Return whether a value has the right type and is within its bound."""
        if self.kind is tuple:
            return isinstance(value, tuple) and set(value) <= set(self.choices) and len(set(value)) == len(value)
        if self.kind in (bool, str):
            return type(value) is self.kind and (not self.choices or value in self.choices)
        kinds = (int, float) if self.kind is float else (int,)
        return type(value) in kinds and self.at_least <= value <= self.at_most

    def text(self, value: Any) -> str:
        """Format a value for `parse`; an absent value is the empty text."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return "" if value is None else str(value)

    def _converted(self, text: str) -> Any:
        """Return the value of a text, which may be out of bounds; None if the text is no value."""
        if self.kind is bool:
            return {"true": True, "false": False}.get(text.lower())
        if self.kind is tuple:
            return tuple(item.strip() for item in text.split(",")) if text else ()
        if self.kind is str:
            text = text.lower() if self.ignores_case else text
            return self.synonyms.get(text, text)
        if self.kind is int:
            return int(text) if _WHOLE_NUMBER.fullmatch(text) else None
        return float(text) if _NUMBER.fullmatch(text) else None

    def _refusal(self, given: Spelling, value: Any, text: str) -> str:
        """Return the sentence for a value that the option does not take."""
        if not self.too_low:
            return f"{given.name} must be {self._bound_in(given.unit)}, got {shown(text)!r}"
        if value is None or value > LONG_MAX:
            return f"{given.name} must be a whole number, got {shown(text)!r}"
        return self.too_low if value < self.at_least else f"{given.name} must be at most {self.at_most}, got {value}"

    def _bound_in(self, unit: int) -> str:
        if unit == 1:
            return self.bound
        at_least = self.at_least if self.at_least == UNLIMITED else -(-self.at_least // unit)
        return f"a whole number, at least {at_least} and at most {self.at_most // unit}"


def option(
    name: str,
    default: Any,
    *,
    kind: type | None = None,
    at_least: float = 0,
    at_most: float = LONG_MAX,
    choices: tuple[str, ...] = (),
    ignores_case: bool = False,
    synonyms: Mapping[str, str] = MappingProxyType({}),
    parser: Callable[[str, Any], Any] | None = None,
    too_low: str = "",
    takes: str = "",
    is_required: bool = False,
    also: Iterable[str | Spelling] = (),
    acts: tuple[str, ...] = (AT_APPEND, AT_COMMIT),
    idle: str = "",
    doc: str,
) -> Any:
    """Declare an option as a field of a dataclass.

    Parameters
    ----------
    name : str
        The name, as users spell it.
    default : Any
        The value if the option is not given.
    kind : type, optional
        The type of its values: bool, int, float, str or tuple. By default it is the type of ``default``.
    at_least, at_most : number
        The bound of a number, both included.
    choices : tuple of str
        The words that a str or a tuple may hold; empty for any text.
    ignores_case : bool
        Whether the words may be given in any case.
    synonyms : mapping of str to str
        Other words with the same meanings as ``choices``.
    parser : callable of (name, text), optional
        Reads the text, or what a caller of Python gives, in place of all of the above, and raises `InvalidOptionError`
        with a sentence of its own.
    too_low : str
        The whole sentence for a number below ``at_least``, if it must have the words of Spark's Kafka connector.
    takes : str
        The values that the option takes, in words; made from the type and the bound by default.
    is_required : bool
        Whether the option must be given.
    also : iterable of str or Spelling
        Other names of the option, the strongest first.
    acts : tuple of str
        The places where the option has an effect: `AT_APPEND`, `AT_COMMIT`, `AT_READ`.
    idle : str
        Why it has no effect elsewhere.
    doc : str
        Its effect, for users.
    """
    spellings = tuple(each if isinstance(each, Spelling) else Spelling(each) for each in also)
    declared = Option(
        name,
        default,
        kind or type(default),
        doc,
        at_least,
        at_most,
        choices,
        ignores_case,
        synonyms,
        parser,
        too_low,
        takes,
        is_required,
        spellings,
        acts,
        idle,
    )
    return field(default=default, metadata={"option": declared})


def options_of(declaring: Any) -> dict[str, Option]:
    """Return the options that a dataclass declares, by field names, in order."""
    return {each.name: each.metadata["option"] for each in fields(declaring) if "option" in each.metadata}


def taken(declaring: type[DeclaringT], given: Mapping[str, Any]) -> DeclaringT:
    """Make a dataclass of those of its options that a caller of Python gives; other names in ``given`` are not its."""
    return declaring(**{name: each.take(given[name]) for name, each in options_of(declaring).items() if name in given})


def described(declaring: Any) -> list[Described]:
    """Return the options that a dataclass declares, as documentation shows them."""
    return [
        Described(each.name, each.default_text, each.bound, each.doc, each.acts)
        for each in options_of(declaring).values()
    ]


def properties_in(data: bytes, path: str) -> dict[str, str]:
    """Parse the bytes of a Java ``.properties`` file.

    Raises
    ------
    InvalidOptionError
        The file is malformed, or has a property twice.
    """
    try:
        found: dict[str, str] = javaproperties.loads(data, object_pairs_hook=_once)
    except (javaproperties.InvalidUEscapeError, InvalidOptionError) as error:
        reason = error.message if isinstance(error, InvalidOptionError) else str(error)
        raise InvalidOptionError(f"{reason} (file {path})") from error
    return found


def _once(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in pairs:
        if name in found:
            raise InvalidOptionError(f"{name} is given twice: {found[name]!r} and {text!r}")
        found[name] = text
    return found


def shown(text: str) -> str:
    """Return a text for a message, shortened if it is long."""
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}... ({len(text)} characters)"
