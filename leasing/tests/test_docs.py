"""docs/api.md against the code."""

from __future__ import annotations

import re
from pathlib import Path

from leasing.api import problems, urls
from leasing.models import EndCause, Result

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = (ROOT / "docs" / "api.md").read_text()


def test_every_code_is_listed_and_no_other() -> None:
    listed = set(re.findall(r"^\| \d{3} \| `(\w+)`", DOCUMENT, re.MULTILINE))
    sources = "\n".join(path.read_text() for path in (ROOT / "leasing" / "api").rglob("*.py"))
    raised = set(re.findall(r"(?:problem\(\s*\d{3}, |default_code = |NotFound\([^)]*code=)\"(\w+)\"", sources))
    assert listed == raised | set(problems._CODES.values())


def test_every_cause_and_result_is_listed() -> None:
    assert set(EndCause.values) <= set(re.findall(r"`(\w+)`", DOCUMENT))
    assert set(Result.values) <= set(re.findall(r"\w+", DOCUMENT))


def test_every_call_is_listed() -> None:
    listed = {re.sub(r"{\w+}", "*", path) for path in re.findall(r"^\| `[A-Z]+ /v1/([^`]+)`", DOCUMENT, re.MULTILINE)}
    pages = {"schema", "docs", ""}
    served = {re.sub(r"<str:\w+>", "*", str(pattern.pattern)) for pattern in urls.urlpatterns} - pages
    assert listed == served
