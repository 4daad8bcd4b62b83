"""Lists of keyword arguments in a YAML file: the little of YAML that task files use for their tests.

Understood under a top-level key: items as flow mappings (`- {"m": 64, seed: 1}`) or as blocks of
`key: value` lines; numbers, true, false, null, quoted and plain text, flow lists. Anything else is an error
that names the line, never a guess.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from assay.errors import InputError

_KEY = re.compile(r"""^(?P<key>"[^"]*"|'[^']*'|[A-Za-z_][\w.-]*)\s*:(?:\s+(?P<value>.*))?$""")
_PLAIN = re.compile(r"[A-Za-z_./-][\w./ -]*")
_WORDS = {"true": True, "false": False, "null": None, "~": None}


def lists(text: str, keys: Iterable[str], where: str) -> dict[str, list[dict[str, Any]]]:
    """Lists of mappings under top-level keys; a key that the file has not got is left out.

    Raises:
        InputError: an item that is written in a way not understood.
    """
    wanted = set(keys)
    found: dict[str, list[dict[str, Any]]] = {}
    current: str | None = None
    for number, line in _lines(text):
        place = f"{where}:{number}"
        if not line[0].isspace() and not line.startswith("-"):
            head = _KEY.match(line)
            name = _text(head.group("key")) if head else None
            current = name if name in wanted else None
            if current is not None:
                found[current] = []
                if head and head.group("value") not in (None, "", "[]"):
                    raise InputError(f"`{current}` is no list of lines", place, "write one `- {...}` a line")
            continue
        if current is None:
            continue
        body = line.strip()
        if body.startswith("-"):
            body = body[1:].strip()
            found[current].append({})
        elif not found[current]:
            raise InputError("an item has to begin with `-`", place, "write one `- {...}` a line")
        if body:
            found[current][-1].update(_item(body, place))
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, comments and blank ones left out."""
    for number, line in enumerate(text.splitlines(), start=1):
        bare = re.sub(r"(^|\s)#.*$", "", line) if '"' not in line and "'" not in line else line
        if bare.strip() and not bare.lstrip().startswith("#"):
            yield number, bare.rstrip()


def _item(body: str, place: str) -> dict[str, Any]:
    if body.startswith("{"):
        if not body.endswith("}"):
            raise InputError("a mapping goes over several lines", place, "write it on one line")
        return dict(_pair(part, place) for part in _split(body[1:-1], place))
    return dict([_pair(body, place)])


def _pair(text: str, place: str) -> tuple[str, Any]:
    match = _KEY.match(text.strip())
    if match is None:
        # a flow mapping may leave out the blank after a quoted key
        match = re.match(r"""^(?P<key>"[^"]*"|'[^']*')\s*:(?P<value>.*)$""", text.strip())
    if match is None or not (match.group("value") or "").strip():
        raise InputError(f"`{text.strip()}` is no `key: value`", place, "write it as `key: value`")
    return _text(match.group("key")), _value(match.group("value").strip(), place)


def _value(text: str, place: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if text.startswith("[") and text.endswith("]"):
        return [_value(part.strip(), place) for part in _split(text[1:-1], place)]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if _PLAIN.fullmatch(text):
            return text
        raise InputError(
            f"`{text}` is not understood", place, "write a number, text or a flow list"
        ) from None


def _text(key: str) -> str:
    return key[1:-1] if key[:1] in "\"'" else key


def _split(text: str, place: str) -> list[str]:
    """Parts between commas, those inside brackets and quotes aside."""
    parts, depth, quote, start = [], 0, "", 0
    for position, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "[{":
            depth += 1
        elif c in "]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if depth or quote:
        raise InputError("brackets or quotes that do not close", place, "close them")
    parts.append(text[start:])
    return [part for part in parts if part.strip()]
