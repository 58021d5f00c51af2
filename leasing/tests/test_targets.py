from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasing.targets import normalise_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("example.com", "example.com"),
        ("Example.COM.", "example.com"),
        ("https://User:secret@www.Example.com:8443/a?b=c#d", "www.example.com"),
        ("example.com:443/path", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("https://BÜCHER.example/", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("my_host.internal", "my_host.internal"),
        ("192.0.2.7", "192.0.2.7"),
        ("http://192.0.2.7:8080", "192.0.2.7"),
        ("2001:DB8::1", "2001:db8::1"),
        ("[2001:db8:0::1]", "2001:db8::1"),
        ("https://[2001:db8::1]:443/x", "2001:db8::1"),
        ("  example.com ", "example.com"),
    ],
)
def test_a_target_is_known_by_its_host(text: str, target: str) -> None:
    assert normalise_target(text) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "https://",
        "a b",
        "exa mple.com",
        "-a.com",
        "a..b",
        "http://[::1",
        "é" * 300,
        "a" * 3000,
        "a\x00b",
        "a\ud800b",
    ],
)
def test_what_has_no_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is "):
        normalise_target(text)


@pytest.mark.parametrize("scope", ["eth0", "a" * 1000, "\x00", "\ud800"])
def test_an_address_with_a_scope_is_refused(scope: str) -> None:
    """Whatever is there, Python takes for a scope."""
    with pytest.raises(ValueError, match="scope"):
        normalise_target(f"fe80::1%{scope}")


@given(st.text(max_size=80))
def test_every_text_is_a_target_or_a_clear_error(text: str) -> None:
    problem, target = "is fine", ""
    try:
        target = normalise_target(text)
    except ValueError as error:
        problem = str(error)
    assert problem.startswith("is ")
    if target:
        assert target.isascii()
        assert len(target) <= 253
        assert target == target.lower()
        assert normalise_target(target) == target
