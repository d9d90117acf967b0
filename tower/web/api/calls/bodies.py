"""Parsing of bodies: JSON, and the YAML that has a JSON form; both are limited in size and depth."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any

from yaml import AliasEvent, SafeLoader, YAMLError, load

from tower.kube.status import StatusError

#: Longest YAML body, B: parsing takes a hundred times as long as JSON.
YAML_LIMIT = 64 * 1024

#: Most objects and lists inside each other.
DEPTH_LIMIT = 64

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class _TooDeep(YAMLError):
    """The body exceeds `DEPTH_LIMIT`."""


def parse(raw: bytes, *, yaml: bool = False) -> Any:
    """Return the JSON or YAML value *raw*.

    :raise StatusError: it is invalid, nested too deeply or, as YAML, too long.
    """
    if yaml and len(raw) > YAML_LIMIT:
        raise StatusError(413, f"the YAML body is longer than {YAML_LIMIT} B: send JSON")
    try:
        if yaml:
            raw = json.dumps(load(raw, _Loader)).encode()  # noqa: S506 - a safe loader
        # decoded here: json would accept surrogates in UTF-8, and other encodings
        value = json.loads(raw.decode(), parse_constant=_no_constant, parse_float=_finite)
        if _SURROGATE.search(raw):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as e:
        raise StatusError(400, "the body has half of a surrogate pair: send characters in UTF-8") from e
    except (_TooDeep, RecursionError) as e:
        raise too_deep("the body") from e
    except (ValueError, TypeError, YAMLError) as e:
        raise StatusError(400, "the body is not a valid JSON or YAML object") from e
    check_depth(value, "the body")
    return value


def check_depth(value: Any, subject: str) -> None:
    """Check that at most `DEPTH_LIMIT` objects and lists are inside each other.

    :raise StatusError: there are more; functions that follow the nesting would fail.
    """
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(DEPTH_LIMIT):
        if not level:
            return
        level = [
            item
            for each in level
            for item in (each.values() if isinstance(each, dict) else each)
            if isinstance(item, dict | list)
        ]
    if level:
        raise too_deep(subject)


def too_deep(subject: str) -> StatusError:
    """Return the error for a value that is nested too deeply."""
    return StatusError(400, f"{subject} is nested too deeply: at most {DEPTH_LIMIT} levels are allowed")


class _Loader(SafeLoader):
    """Loads the YAML that has a JSON form: no aliases, whose expansion is unlimited, and no dates."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, stream: bytes) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node; reject aliases and deep nesting."""
        if self.check_event(AliasEvent):
            raise YAMLError("aliases are not supported")
        if self._depth > DEPTH_LIMIT:
            raise _TooDeep
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def fetch_flow_collection_start(self, token: Any) -> None:
        """Read a bracket; each one takes as long as the number of open ones."""
        if self.flow_level > DEPTH_LIMIT:
            raise _TooDeep
        super().fetch_flow_collection_start(token)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ValueError(text)
    return number
