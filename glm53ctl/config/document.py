"""YAML text to plain values, with the line of every key.

Stricter than YAML: a key may stand once, there are no aliases, tags or dates. So a typo cannot
hide, and a small file cannot grow into a large one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import JsonValue

from glm53ctl.config.catalog import Keys, dotted, takes_null, takes_text
from glm53ctl.findings import Finding, Severity

_PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("bool", "float", "int", "null"))
_TEXT_TAG = "tag:yaml.org,2002:str"
_MOST = float(1 << 63)
"""No number reaches it: what does is a slip, and too long an integer cannot be written again."""


class _Loader(yaml.SafeLoader):
    """A safe loader that knows text, numbers, switches, null, lists and mappings only."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the way PyYAML declares it
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _PLAIN_TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not supported", mark)
        return super().compose_node(parent, index)


@dataclass
class Document:
    """Values as written, and where each key stands (1 is the first line)."""

    values: dict[str, JsonValue] = field(default_factory=dict)
    lines: dict[Keys, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def fail(code: str, where: str, message: str, fix: str = "") -> Finding:
    """Return a failed finding of the configuration."""
    return Finding(code=code, severity=Severity.FAIL, where=where, message=message, fix=fix)


def is_text(value: str) -> bool:
    """Say whether a value can be written: half a surrogate pair, or bytes of no UTF-8, cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _syntax(where: str, what: str) -> Finding:
    return fail("CFG_SYNTAX", where, f"This is not valid YAML: {what}.")


@dataclass
class _Reader:
    """One walk over composed YAML."""

    loader: _Loader
    place: str
    document: Document

    def value(self, node: yaml.Node, keys: Keys) -> JsonValue:
        if isinstance(node, yaml.MappingNode):
            return dict(self._members(node, keys))
        if isinstance(node, yaml.SequenceNode):
            return [self._item(item, (*keys, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, keys)

    def _item(self, node: yaml.Node, keys: Keys) -> JsonValue:
        self.document.lines[keys] = node.start_mark.line + 1
        return self.value(node, keys)

    def _members(self, node: yaml.MappingNode, keys: Keys) -> Iterator[tuple[str, JsonValue]]:
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or not is_text(key_node.value):
                self._report(_syntax(f"{self.place}:{line}", "a key must be a plain word"))
                continue
            key = str(key_node.value)
            inner = (*keys, key)
            if key in seen:
                where = f"{self.place}:{line} {dotted(inner)}"
                message = f"{dotted(inner)} already stands on line {seen[key]}."
                fix = "Keep one of the two lines."
                self._report(fail("CFG_DUPLICATE_KEY", where, message, fix))
                continue
            seen[key] = line
            self.document.lines[inner] = line
            yield key, self.value(value_node, inner)

    def _scalar(self, node: yaml.Node, keys: Keys) -> JsonValue:
        if node.tag == _TEXT_TAG and is_text(node.value):
            return str(node.value)
        if node.tag not in _PLAIN_TAGS:
            what = "tags are not supported"
            if node.tag == _TEXT_TAG:
                what = "a character is not allowed"
            self._report(_syntax(f"{self.place}:{node.start_mark.line + 1} {dotted(keys)}", what))
            return None
        is_null = node.tag.endswith(":null")
        if takes_text(keys) and not (is_null and (takes_null(keys) or not node.value)):
            return str(node.value)
        return self._number_or_switch(node, keys)

    def _number_or_switch(self, node: yaml.Node, keys: Keys) -> JsonValue:
        text = str(node.value)
        if ":" in text:  # `1:30` is ninety to YAML, and to nobody else
            return text
        try:
            value: JsonValue = self.loader.construct_object(node)
        except ValueError:  # an integer of thousands of digits, or a malformed number like 0b
            return text
        if isinstance(value, int | float) and not abs(value) < _MOST:  # .nan is not below it either
            return text
        return value

    def _report(self, finding: Finding) -> None:
        self.document.findings.append(finding)


def _problem(place: str, error: yaml.YAMLError) -> Finding:
    """Return a syntax error without the text around it, which may hold a secret."""
    mark = getattr(error, "problem_mark", None)
    where = f"{place}:{mark.line + 1}" if mark else place
    return _syntax(where, str(getattr(error, "problem", None) or "a character is not allowed"))


def read(text: str, place: str, keys: Keys = ()) -> tuple[JsonValue, Document]:
    """Return the value of a YAML text that stands at `keys`, and the document around it."""
    document = Document()
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            return _Reader(loader, place, document).value(node, keys), document
    except yaml.YAMLError as error:
        document.findings.append(_problem(place, error))
    except RecursionError:
        document.findings.append(_syntax(place, "it is nested too deeply"))
    return None, document


def read_mapping(text: str, place: str) -> Document:
    """Return a configuration file as values; everything wrong with it is in `findings`."""
    value, document = read(text, place)
    if isinstance(value, dict):
        document.values = value
    elif value is not None:
        document.findings.append(
            fail("CFG_TYPE", place, "The file must hold `key: value` lines, not a single value.")
        )
    return document
