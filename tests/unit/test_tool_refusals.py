"""Tests of what no model could use is refused when the module is loaded, in one line that says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cadre.errors import ToolDefinitionError
from cadre.tool import tool


class NotJson:
    """No type that JSON knows."""


def no_hint(a) -> str:  # type: ignore[no-untyped-def]
    """Does."""
    return ""


def no_docstring(a: int) -> str:
    return ""


def only_args(a: int) -> str:
    """
    Args:
        a: A number.
    """
    return ""


def star_args(*numbers: int) -> str:
    """Does."""
    return ""


def star_kwargs(**numbers: int) -> str:
    """Does."""
    return ""


def positional_only(a: int, /) -> str:
    """Does."""
    return ""


def documents_ghosts(a: int) -> str:
    """Does.

    Args:
        a: There.
        b: Not there.
    """
    return ""


def odd_type(a: NotJson) -> str:
    """Does."""
    return ""


def odd_union(a: list[int] | NotJson) -> str:
    """Does."""
    return ""


def unknown_type(a: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    """Does."""
    return ""


def wrong_default(a: int = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
    """Does."""
    return ""


def final_answer(answer: str) -> str:
    """Ends."""
    return answer


def naïve(a: int) -> str:
    """Does."""
    return ""


def generates() -> Iterator[int]:
    """Does."""
    yield 1


class Holder:
    def method(self, a: int) -> str:
        """Does."""
        return ""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_hint, "like a: str"),
        (no_docstring, "write a docstring"),
        (only_args, "write a docstring"),
        (star_args, "*numbers"),
        (star_kwargs, "**numbers"),
        (positional_only, "parameter 'a' is positional-only"),
        (documents_ghosts, " b, "),
        (odd_type, "parameter 'a' has a type"),
        (odd_union, "parameter 'a' has a type"),
        (unknown_type, "'Nowhere'"),
        (wrong_default, "default of 'a'"),
        (final_answer, "'final_answer'"),
        (naïve, "name 'naïve': use 1 to 64"),
        (generates, "generator"),
        (Holder.method, "'self'"),
        (Holder, "@tool"),
    ],
)
def test_what_a_model_could_not_use_is_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ToolDefinitionError) as raised:
        tool(function)
    text = str(raised.value)
    assert message in text
    assert "\n" not in text
    if function is not Holder:
        assert text.startswith(f"{__file__}:")


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="@tool"):
        tool(aproval=True)(no_docstring)  # type: ignore[call-overload]
    with pytest.raises(ToolDefinitionError, match=r"labels.*`str`.*`int`"):
        tool(labels={"priority": 1})(no_docstring)  # type: ignore[dict-item]
    with pytest.raises(ToolDefinitionError, match="concurrency=0: give 1 or more"):
        tool(description="Does.", concurrency=0)(no_docstring)
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ToolDefinitionError, match=f"timeout={seconds:g}: give seconds above 0"):
            tool(description="Does.", timeout=seconds)(no_docstring)
    with pytest.raises(ToolDefinitionError, match="name 'a b'"):
        tool(description="Does.", name="a b")(no_docstring)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Refund {amount} € for {order}", "approval-text-unknown-name"),
        ("Refund {amount.real} €", "approval-text-unknown-name"),
        ("Refund {amount:.2f} €", "approval-text-invalid"),
        ("Refund {amount!r} €", "approval-text-invalid"),
        ("Refund {} €", "approval-text-invalid"),
        ("Refund {amount €", "approval-text-invalid"),
        ("Refund amount} €", "approval-text-invalid"),
        (" ", "approval-text-invalid"),
        ("x" * 301, "approval-text-invalid"),
    ],
)
def test_a_sentence_that_cannot_be_filled_in_is_refused(text: str, code: str) -> None:
    with pytest.raises(ToolDefinitionError) as raised:

        @tool(approval_text=text)
        def refund(amount: float) -> str:
            """Pays back."""
            return ""

    assert raised.value.code == code


def test_a_sentence_for_a_person_is_on_the_card() -> None:
    @tool(approval_text="Refund {amount} € {{sic}}")
    def refund(amount: float) -> str:
        """Pays back."""
        return ""

    assert refund.card.approval_text == "Refund {amount} € {{sic}}"
