"""Kubernetes label selectors over the attributes of a proxy, without Django: parsed once, asked in SQL or in Python.

``geo=eu, tier in (a,b), !slow``: requirements joined by commas, all of which must hold. As in Kubernetes, ``a!=b`` and
``a notin (b)`` also match what has no ``a`` at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

MAX_LENGTH = 1024
"""Longest selector, in characters."""


class InvalidSelector(ValueError):
    """The selector can't be read; the message says what was expected, and at which character."""


class Operator(Enum):
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    NOT_EXISTS = "!"


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, attributes: Mapping[str, str]) -> bool:
        match self.operator:
            case Operator.IN:
                return attributes.get(self.key) in self.values
            case Operator.NOT_IN:
                return attributes.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in attributes
            case Operator.NOT_EXISTS:
                return self.key not in attributes


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements that must all hold. None: everything matches."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InvalidSelector."""
        if len(text) > MAX_LENGTH:
            raise InvalidSelector(f"is longer than {MAX_LENGTH} characters")
        return cls(tuple(_Parser(text).requirements()))

    @classmethod
    def from_map(cls, wanted: Mapping[str, str]) -> Self:
        """Equality with each item. Raises InvalidSelector."""
        if sum(len(key) + len(value) for key, value in wanted.items()) > MAX_LENGTH:
            raise InvalidSelector(f"is longer than {MAX_LENGTH} characters")
        for text in (*wanted, *wanted.values()):
            if found := _UNSTORABLE.search(text):
                raise InvalidSelector(f"holds {found[0]!r}, which no attribute can")
        return cls(tuple(Requirement(key, Operator.IN, frozenset({value})) for key, value in wanted.items()))

    def matches(self, attributes: Mapping[str, str]) -> bool:
        return all(requirement.matches(attributes) for requirement in self.requirements)

    def sql(self, column: str) -> tuple[str, dict[str, Any]]:
        """The same as a condition on a jsonb ``column`` that holds one object of strings, and its named parameters.

        Values are asked for by ``@>``, which a GIN index of jsonb_path_ops answers; all equalities by one.
        """
        equal: dict[str, str] = {}
        conditions: list[str] = []
        params: dict[str, Any] = {}
        for number, requirement in enumerate(self.requirements):
            name = f"selector_{number}"
            if requirement.operator in (Operator.EXISTS, Operator.NOT_EXISTS):
                params[name] = requirement.key
                test = f"{column} ? %({name})s"
            elif requirement.operator is Operator.IN and len(requirement.values) == 1 and requirement.key not in equal:
                (equal[requirement.key],) = requirement.values
                continue
            else:
                each = {f"{name}_{index}": value for index, value in enumerate(sorted(requirement.values))}
                params |= {parameter: json.dumps({requirement.key: value}) for parameter, value in each.items()}
                test = " or ".join(f"{column} @> %({parameter})s::jsonb" for parameter in each)
            negated = requirement.operator in (Operator.NOT_IN, Operator.NOT_EXISTS)
            conditions.append(f"not ({test})" if negated else f"({test})")
        if equal:
            params["selector_equal"] = json.dumps(equal)
            conditions.insert(0, f"{column} @> %(selector_equal)s::jsonb")
        return " and ".join(conditions) or "true", params


_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_SPACE = " \t\r\n"
_TOKEN = re.compile(
    rf"[{_SPACE}]*(?:(?P<symbol>==|!=|[=!,()])|(?P<word>[^\s=!,()<>\x00-\x1f\x7f\ud800-\udfff]+)|(?P<end>\Z))"
)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    position: int
    is_word: bool

    @property
    def is_end(self) -> bool:
        return not self.text


class _Parser:
    """Recursive descent over the grammar of k8s.io/apimachinery/pkg/labels, without its ``<`` and ``>``."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens)

    def requirements(self) -> Iterator[Requirement]:
        if not self._next.is_end:
            yield self._requirement()
        while not self._next.is_end:
            self._expect(",")
            yield self._requirement()

    def _requirement(self) -> Requirement:
        if self._next.text == "!":
            self._take()
            return Requirement(self._word("a key"), Operator.NOT_EXISTS)
        key = self._word("a key")
        match self._next.text:
            case "=" | "==":
                self._take()
                return Requirement(key, Operator.IN, frozenset({self._value()}))
            case "!=":
                self._take()
                return Requirement(key, Operator.NOT_IN, frozenset({self._value()}))
            case "in" | "notin" as operator:
                self._take()
                return Requirement(key, Operator(operator), self._values())
            case "," | "":
                return Requirement(key, Operator.EXISTS)
        raise self._unexpected("'=', '==', '!=', 'in', 'notin' or ','")

    def _values(self) -> frozenset[str]:
        self._expect("(")
        if self._next.text == ")":
            raise self._unexpected("a value")
        values = {self._value()}
        while self._next.text == ",":
            self._take()
            values.add(self._value())
        self._expect(")")
        return frozenset(values)

    def _value(self) -> str:
        """A value may be empty: ``a=`` and ``a in (,b)`` mean the attribute that is there and empty."""
        return self._take().text if self._next.is_word else ""

    def _word(self, what: str) -> str:
        if not self._next.is_word:
            raise self._unexpected(what)
        return self._take().text

    def _expect(self, symbol: str) -> None:
        if self._next.is_word or self._next.text != symbol:
            raise self._unexpected(repr(symbol))
        self._take()

    def _take(self) -> _Token:
        token = self._next
        self._next = next(self._tokens, token)
        return token

    def _unexpected(self, wanted: str) -> InvalidSelector:
        found = "the end" if self._next.is_end else repr(self._next.text)
        return InvalidSelector(f"character {self._next.position + 1}: expected {wanted}, found {found}")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while True:
        found = _TOKEN.match(text, position)
        if found is None:
            bad = len(text) - len(text[position:].lstrip(_SPACE))
            raise InvalidSelector(f"character {bad + 1}: {text[bad]!r} is not allowed")
        kind = found.lastgroup or "end"
        yield _Token(found[kind], found.start(kind), is_word=kind == "word")
        if kind == "end":
            return
        position = found.end()
