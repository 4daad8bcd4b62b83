"""The code in what a model wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\n`]*?)[ \t]*$")
_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_LATE = re.compile(r"^.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)


def text_of(completion: Any) -> str:
    """The text of a completion: as it is, or of the last message by the assistant in a list of messages.

    A message's content may be text, or a list of parts of which those of type `text` count.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Mapping):
        return _content(completion.get("content"))
    if isinstance(completion, Sequence):
        messages = [m for m in completion if isinstance(m, Mapping)]
        own = [m for m in messages if m.get("role", "assistant") == "assistant" and _content(m.get("content"))]
        return _content(own[-1].get("content")) if own else ""
    return ""


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text", "")) for part in content
                       if isinstance(part, Mapping) and part.get("type", "text") == "text")
    return ""


def code_of(completion: Any, entry: str = "ModelNew") -> str | None:
    """The code of a completion: its last fenced block that defines the entry point.

    Thoughts before the answer are left out. A fence that is never closed reaches to the end of the text. Text
    without any fence is code when it defines the entry point by itself. None where nothing does.

    Args:
        completion: text, a message, or a list of messages.
        entry: name of the class, function or variable that is run.
    """
    text = text_of(completion).replace("\r\n", "\n")
    text = _LATE.sub("", _THOUGHT.sub("", text))
    defines = re.compile(rf"^(?:class|def)\s+{re.escape(entry)}\b|^{re.escape(entry)}\s*[:=]", re.MULTILINE)
    found = list(_blocks(text))
    if not found:
        return text if defines.search(text) else None
    return next((block for block in reversed(found) if defines.search(block)), None)


def _blocks(text: str) -> Iterator[str]:
    """The insides of fenced blocks, in order. A fence is closed by one of its kind, as long or longer, and bare."""
    fence, indent = "", 0
    lines: list[str] = []
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if not fence:
            if match:
                fence, lines, indent = match.group(1), [], len(line) - len(line.lstrip(" "))
        elif match and match.group(1).startswith(fence) and not match.group(2):
            yield "\n".join(lines) + "\n"
            fence = ""
        else:
            spaces = len(line) - len(line.lstrip(" "))
            lines.append(line[min(indent, spaces):])
    if fence:
        yield "\n".join(lines) + "\n"
