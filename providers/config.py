"""The providers file: which compute backends there are, and what the operator calls them.

Read and validated as a whole before anything starts. Every problem is reported at once, one line each, naming file,
entry and key: whoever has to edit a mounted ConfigMap should have to do it once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import yaml
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from providers.blocks import BLOCKS, Block

EXTERNAL = "external"
"""Where an entry's name stands for a provider (queues, metrics, limits), this one stands for proxies that have none."""

_ENTRY_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME_RULE = "must be 1-63 lower-case letters, digits or '-', with a letter or digit at both ends"


class ProvidersConfigError(Exception):
    """The providers file can't be used. ``problems`` holds one line each; the message is all of them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class ProviderEntry:
    """One named entry of the file; ``block`` is an instance of ``BLOCKS[type]``."""

    name: str
    type: str
    block: Block


@dataclass(frozen=True, slots=True)
class ProvidersConfig:
    """All entries by name, in the order of the file."""

    entries: Mapping[str, ProviderEntry] = field(default_factory=lambda: MappingProxyType({}))


def load_providers_config(path: Path | None) -> ProvidersConfig:
    """Read the file at ``path``; without one there are no providers, and only External proxies.

    Raises ProvidersConfigError.
    """
    if path is None:
        return ProvidersConfig()
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ProvidersConfigError([f"{path}: can't be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ProvidersConfigError([f"{path}: is not UTF-8 text"]) from error
    except yaml.YAMLError as error:
        raise ProvidersConfigError([f"{path}: is not YAML: {_one_line(error)}"]) from error

    entries, problems = _read_document(root)
    if problems:
        raise ProvidersConfigError([f"{path}: {problem}" for problem in problems])
    return ProvidersConfig(MappingProxyType(entries))


def _one_line(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)


def _read_document(root: yaml.Node | None) -> tuple[dict[str, ProviderEntry], list[str]]:
    if not isinstance(root, yaml.MappingNode):
        return {}, ["providers: the file must be a mapping with this one key"]
    problems = [f"{key}: unknown key" for key, _ in _items(root) if key != "providers"]
    problems += [f"{key}: appears twice" for key in _repeated(root)]
    listing = dict(_items(root)).get("providers")
    if not isinstance(listing, yaml.SequenceNode):
        return {}, [*problems, "providers: must be a list of entries"]

    entries: dict[str, ProviderEntry] = {}
    for position, node in enumerate(listing.value):
        entry, found = _read_entry(node, position)
        problems += found
        if entry is not None:
            entries[entry.name] = entry
    return entries, problems + [f"entry {name!r}: name: used by two entries" for name in _repeated_names(listing)]


def _read_entry(node: yaml.Node, position: int) -> tuple[ProviderEntry | None, list[str]]:
    if not isinstance(node, yaml.MappingNode):
        return None, [f"entry #{position + 1}: must be a mapping"]
    problems = [f"{path}: appears twice" for path in _duplicate_keys(node)]
    try:
        raw = _construct(node)
    except yaml.YAMLError as error:
        return None, [f"entry #{position + 1}: {_one_line(error)}"]
    name, kind = raw.get("name"), raw.get("type")

    problems += [f"{key}: unknown key" for key in raw if key not in {"name", "type", *BLOCKS}]
    problems += [f"{key}: does not belong to type {kind!r}" for key in raw if key in BLOCKS and key != kind]
    if "name" not in raw:
        problems.append("name: missing")
    elif not isinstance(name, str) or not _ENTRY_NAME.fullmatch(name):
        problems.append(f"name: {_NAME_RULE}")
    elif name == EXTERNAL:
        problems.append(f"name: {EXTERNAL!r} is reserved for proxies that have no provider")

    block = None
    if "type" not in raw:
        problems.append("type: missing")
    elif not isinstance(kind, str) or kind not in BLOCKS:
        problems.append(f"type: must be one of {', '.join(BLOCKS)}")
    elif not isinstance(raw.get(kind), dict):
        problems.append(f"{kind}: missing; a mapping is needed here, {{}} to take every default")
    else:
        try:
            block = BLOCKS[kind].model_validate(raw[kind])
        except ValidationError as error:
            problems += _explain(error, kind)

    label = f"entry {name!r}" if isinstance(name, str) else f"entry #{position + 1}"
    entry = ProviderEntry(name, kind, block) if isinstance(name, str) and isinstance(kind, str) and block else None
    return entry, [f"{label}: {problem}" for problem in problems]


def _explain(error: ValidationError, kind: str) -> Iterator[str]:
    """Pydantic's findings in the file's own terms. Inputs are never quoted: a misplaced secret stays out of the log."""
    for finding in error.errors(include_url=False, include_input=False):
        parts = list(finding["loc"])
        if parts[-1:] == ["[key]"]:
            parts.pop()
        if finding["type"] == "value_error":
            # Pydantic locates the validation of a default by the field's name, everything else by its alias.
            parts = [to_camel(part) if isinstance(part, str) and "_" in part else part for part in parts]
        key = ".".join(str(part) for part in (kind, *parts))
        match finding["type"]:
            case "missing":
                message = "missing"
            case "extra_forbidden":
                message = "unknown key"
            case "string_pattern_mismatch":
                message = f"must match {finding['ctx']['pattern']}"
            case "value_error":
                message = str(finding["ctx"]["error"])
            case _:
                message = finding["msg"]
        yield f"{key}: {message}"


def _construct(node: yaml.MappingNode) -> dict[object, object]:
    loader = yaml.SafeLoader("")
    try:
        value = loader.construct_document(node)
    finally:
        loader.dispose()
    assert isinstance(value, dict)
    return value


def _items(node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node]]:
    for key, value in node.value:
        yield str(key.value), value


def _repeated(node: yaml.MappingNode) -> list[str]:
    keys = [key for key, _ in _items(node)]
    return sorted({key for key in keys if keys.count(key) > 1})


def _repeated_names(listing: yaml.SequenceNode) -> list[str]:
    mappings = [dict(_items(node)) for node in listing.value if isinstance(node, yaml.MappingNode)]
    names = [node["name"].value for node in mappings if isinstance(node.get("name"), yaml.ScalarNode)]
    return sorted({name for name in names if names.count(name) > 1})


def _duplicate_keys(node: yaml.Node, path: str = "", ancestors: frozenset[int] = frozenset()) -> Iterator[str]:
    """YAML forbids them, PyYAML lets the last one win in silence; ``ancestors`` stops at an alias of itself."""
    if id(node) in ancestors:
        return
    ancestors |= {id(node)}
    if isinstance(node, yaml.MappingNode):
        yield from (path + key for key in _repeated(node))
        for key, value in _items(node):
            yield from _duplicate_keys(value, f"{path}{key}.", ancestors)
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            yield from _duplicate_keys(value, f"{path}{position}.", ancestors)
