from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from celery.beat import SchedulingError
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from proxyfleet.conf import settings
from proxyfleet.logs import formatter


def record(message: str, *arguments: object, error: Exception | None = None) -> logging.LogRecord:
    told = None if error is None else (type(error), error, None)
    return logging.LogRecord("fleet.tests", logging.WARNING, __file__, 1, message, arguments, told)


def line(message: str, *arguments: object, error: Exception | None = None) -> dict[str, Any]:
    written = formatter("json").format(record(message, *arguments, error=error))
    assert "\n" not in written
    shown: dict[str, Any] = json.loads(written)
    return shown


def test_a_line_is_one_object() -> None:
    shown = line("%s has %d\nlines", "this", 2)
    assert list(shown) == ["timestamp", "level", "logger", "message"]
    assert shown["timestamp"].endswith("Z")
    assert (shown["level"], shown["logger"], shown["message"]) == ("warning", "fleet.tests", "this has 2\nlines")


def test_an_exception_is_in_the_same_line() -> None:
    shown = line("it failed", error=ZeroDivisionError("of the tests"))
    assert shown["exception"].endswith("ZeroDivisionError: of the tests")


def test_a_line_within_a_span_names_it() -> None:
    context = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags.get_default())
    with trace.use_span(NonRecordingSpan(context)):
        shown = line("inside")
    assert (shown["traceID"], shown["spanID"]) == (f"{0xABC:032x}", f"{0xDEF:016x}")


def test_text_is_for_people() -> None:
    shown = formatter("text").format(record("it is %s", "done"))
    assert "it is done" in shown
    assert "warning" in shown
    assert "fleet.tests" in shown
    assert not shown.startswith("{")


@pytest.mark.parametrize("kind", ["json", "text"])
@pytest.mark.parametrize(
    "leak",
    [
        "redis://:hush-hush@broker:6379/0 can't be reached",
        "via http://crawler:hush-hush@192.0.2.1:3128",
        "Authorization: Bearer hush-hush",
        "{'authorization': 'Basic hush-hush', 'accept': '*/*'}",
        '{"Proxy-Authorization": "Basic hush-hush"}',
        "sent Bearer hush-hush/of.the=",
        "Authorization: PVEAPIToken=root@pam!fleet=hush-hush",
        "PVEAPIToken=root@pam!fleet=hush-hush",
        "password=hush-hush&next=/",
        '"client_secret": "hush-hush"',
        "api_key = hush-hush",
        "X-Auth-Token: hush-hush",
        "#cloud-config\nusers: [{passwd: hush-hush}]\nruncmd: hush-hush",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nhush-hush\n-----END OPENSSH PRIVATE KEY-----",
        "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.hush-hush",
    ],
)
def test_a_secret_is_struck_out(leak: str, kind: str) -> None:
    for message, arguments in ((leak, ()), ("it said %s", (leak,))):
        shown = formatter(kind).format(record(message, *arguments))
        assert "hush-hush" not in shown
        assert "***" in shown
    assert "hush-hush" not in formatter(kind).format(record("it failed", error=ValueError(leak)))


def test_the_process_own_secrets_are_struck_out_wherever_they_are() -> None:
    secret = settings().secret_key.get_secret_value()
    assert line(f"<{secret}>")["message"] == "<***>"


@pytest.mark.parametrize(
    "plain",
    [
        "https://www.gstatic.com/generate_204 answered 204",
        "qemu+ssh://root@host-1/system is slow",
        "default/p1: CreateInstance is done",
        "Use the header 'Authorization' with a bearer token.",
        "The token is unknown, expired or revoked.",
    ],
)
def test_what_is_no_secret_stays(plain: str) -> None:
    assert line(plain)["message"] == plain


def test_a_broker_outage_is_one_line_and_other_errors_are_whole(caplog: pytest.LogCaptureFixture) -> None:
    beat = logging.getLogger("celery.beat")
    for error in (SchedulingError("no broker"), SchedulingError("no broker"), ZeroDivisionError("a bug")):
        beat.error("Message Error: %s\n%s", error, ["a stack"], exc_info=error)
    outage, bug = caplog.records
    assert (outage.getMessage(), outage.exc_info) == ("no broker", None)
    assert bug.exc_info is not None
