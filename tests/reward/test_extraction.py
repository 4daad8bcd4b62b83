"""The code in what a model wrote."""

from __future__ import annotations

from typing import Any

import pytest

from assay.reward import code_of, text_of

CODE = "import torch\n\nclass ModelNew:\n    pass\n"
OTHER = "class Model:\n    pass\n"
FIRST = "class ModelNew:\n    first = True\n"


def fenced(code: str, mark: str = "```", info: str = "python") -> str:
    return f"{mark}{info}\n{code}{mark}\n"


@pytest.mark.parametrize(("completion", "wanted"), [
    (fenced(CODE), CODE),
    ("Here you are:\n\n" + fenced(CODE) + "\nIt is fast.", CODE),
    (fenced(CODE, info=""), CODE),
    (fenced(CODE, mark="~~~~", info="py"), CODE),
    (fenced(FIRST) + "Better:\n" + fenced(CODE), CODE),
    (fenced(CODE) + "Call it like this:\n" + fenced("y = ModelNew()(x)\n"), CODE),
    (fenced(CODE) + "The reference was\n" + fenced(OTHER), CODE),
    ("```python\n" + CODE, CODE + "\n"),
    (fenced(FIRST) + "```python\n" + CODE + "    x = (", CODE + "    x = (\n"),
    (CODE, CODE),
    ("<think>\n" + fenced(FIRST) + "</think>\n" + fenced(CODE), CODE),
    ("a thought that began before\n" + fenced(FIRST) + "</think>\n" + fenced(CODE), CODE),
    ("<think>\n" + fenced(FIRST) + "</think>\nno answer", None),
    ("1. This one:\n\n   ```python\n   class ModelNew:\n       pass\n   ```\n", "class ModelNew:\n    pass\n"),
    (fenced(CODE).replace("\n", "\r\n"), CODE),
    (fenced("def ModelNew(x):\n    return x\n"), "def ModelNew(x):\n    return x\n"),
    (fenced("ModelNew = make()\n"), "ModelNew = make()\n"),
    (fenced(OTHER), None),
    ("I cannot.", None),
    ("", None),
    (fenced("class ModelNewest:\n    pass\n"), None),
    (fenced("# class ModelNew\n"), None),
])
def test_the_last_block_that_defines_the_entry_is_the_code(completion: str, wanted: str | None) -> None:
    assert code_of(completion) == wanted


def test_a_fence_inside_a_longer_fence_is_text() -> None:
    inner = 'class ModelNew:\n    """\n    ```\n    """\n'
    assert code_of(fenced(inner, mark="````")) == inner


def test_another_entry_may_be_asked_for() -> None:
    assert code_of(fenced(OTHER), "Model") == OTHER


@pytest.mark.parametrize(("completion", "wanted"), [
    ("text", "text"),
    ([{"role": "assistant", "content": "text"}], "text"),
    ([{"role": "assistant", "content": "draft"}, {"role": "user", "content": "no"},
      {"role": "assistant", "content": "text"}], "text"),
    ([{"role": "assistant", "content": "text"}, {"role": "tool", "content": "ran"}], "text"),
    ([{"role": "assistant", "content": "text"}, {"role": "assistant", "content": "", "tool_calls": []}], "text"),
    ([{"role": "assistant", "content": [{"type": "text", "text": "te"}, {"type": "image"},
                                        {"type": "text", "text": "xt"}]}], "text"),
    ({"role": "assistant", "content": "text"}, "text"),
    ([{"content": "text"}], "text"),
    ([], ""),
    (None, ""),
    ([{"role": "assistant", "content": None}], ""),
])
def test_messages_are_read_to_the_last_of_the_assistant(completion: Any, wanted: str) -> None:
    assert text_of(completion) == wanted
