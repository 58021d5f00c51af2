"""axe-core, which scripts/fetch-axe fetches, on the page that a window shows."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

FOLDER = Path(__file__).resolve().parents[2] / ".tools" / "axe"

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

EXCEPTIONS: dict[str, str] = {}
"""Rules that are not asked, and why."""


@cache
def _script() -> str:
    found = sorted(FOLDER.glob("axe-*.min.js"))
    if not found:
        pytest.skip("axe-core is not here: scripts/fetch-axe fetches it from npm")
    return found[-1].read_text()


def violations(page: Page, *, colours_only: bool = False) -> list[str]:
    """One line for each rule that the page breaks, with the elements that do."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_script())
    only = {"type": "rule", "values": ["color-contrast"]} if colours_only else {"type": "tag", "values": TAGS}
    options = {
        "runOnly": only,
        "rules": {rule: {"enabled": False} for rule in EXCEPTIONS},
        "resultTypes": ["violations"],
    }
    found: list[dict[str, Any]] = page.evaluate("options => axe.run(document, options)", options)["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {rule['help']}: "
        + "; ".join(
            f"{' '.join(map(str, node['target']))} {node['html'][:160]} {_why(node)}" for node in rule["nodes"][:3]
        )
        + (f" and {len(rule['nodes']) - 3} more" if len(rule["nodes"]) > 3 else "")
        for rule in found
    ]


def _why(node: dict[str, Any]) -> str:
    return "; ".join(check["message"] for check in (*node["any"], *node["all"], *node["none"]))[:200]
