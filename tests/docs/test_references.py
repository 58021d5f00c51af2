"""What the documents name exists: files, headings, settings, commands, targets of make, words of the log."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import get_commands

from providers.base import BehaviourProfile
from providers.profiles import PROFILES
from proxyfleet.conf import Settings
from tests.docs.documents import DOCUMENTS, PLACES, ROOT, Document

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)

OF_THE_CLIENT = {"PROXYFLEET_API", "PROXYFLEET_TOKEN"}
EXPECTED = """
architecture api settings provider-contract provider-spec-template providers-existing providers kvm-provider
kvm2-provider proxmox-provider gcp-provider kubernetes-provider testing operating upgrade deploy kubernetes
"""


def test_there_is_a_document_for_everything() -> None:
    assert [name for name in EXPECTED.split() if not (ROOT / "docs" / f"{name}.md").exists()] == []


def test_the_readme_leads_to_every_document() -> None:
    by_name = {document.path: document for document in DOCUMENTS}
    reached, ahead = set(), [ROOT / "README.md"]
    while ahead:
        path = ahead.pop()
        if path in reached or path not in by_name:
            continue
        reached.add(path)
        ahead += [(path.parent / link.partition("#")[0]).resolve() for link in _links(by_name[path])]
    assert {document.name for document in DOCUMENTS} == {str(path.relative_to(ROOT)) for path in reached}


def _links(document: Document) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", document.text) if "://" not in link]


@each_document
def test_links_lead_somewhere(document: Document) -> None:
    headings = {other.path: other.headings for other in DOCUMENTS}
    for link in _links(document):
        file, _, anchor = link.partition("#")
        target = (document.path.parent / file).resolve() if file else document.path
        assert target.exists(), link
        assert not anchor or anchor in headings[target], link


@each_document
def test_settings_commands_and_targets_exist(document: Document) -> None:
    variables = {f"PROXYFLEET_{name.upper()}" for name in Settings.model_fields} | OF_THE_CLIENT
    assert set(re.findall(r"\bPROXYFLEET_[A-Z_]*[A-Z]\b", document.text)) <= variables
    assert set(re.findall(r"\bmanage\.py ([a-z][a-z0-9_]+)", document.text)) <= set(get_commands())
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = "\n".join([*re.findall(r"`([^`\n]+)`", document.text), *(block.text for block in document.blocks)])
    assert set(re.findall(r"(?:^|[ (])make (?:-s )?([a-z][a-z-]+)", code, re.MULTILINE)) <= targets


@each_document
def test_files_of_the_project_exist(document: Document) -> None:
    tops = "proxyfleet|providers|health|leasing|k8s_sync|deploy|tests|docs|bench"
    for path in re.findall(rf"`((?:{tops})/[^`*\s<>]+)`", document.text):
        assert (ROOT / path).exists(), path


@each_document
def test_every_block_of_commands_says_where_it_runs_and_can_be_parsed(document: Document) -> None:
    for block in document.blocks:
        assert block.place in (("",) if document.name == "README.md" else PLACES), block
        subprocess.run(["bash", "-n", "-c", block.text], check=True)


def test_words_of_the_log_are_those_of_the_code() -> None:
    table = (ROOT / "docs" / "operating.md").read_text().partition("## In the log")[2].partition("\n## ")[0]
    words = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(words) > 8
    product = [path for top in ("proxyfleet", "health", "leasing", "k8s_sync") for path in _sources(ROOT / top)]
    source = "".join(path.read_text() for path in product)
    assert [phrase for phrase in words if phrase not in source] == []


def _sources(top: Path) -> list[Path]:
    return [path for path in top.rglob("*.py") if "tests" not in path.parts]


def test_how_the_existing_providers_behave_is_told_as_the_reconciler_reads_it() -> None:
    table = (ROOT / "docs" / "providers-existing.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("|")]
    types = [column.split(", ")[0] for column in rows[0][1:]]
    assert set(PROFILES) == {name for column in rows[0][1:] for name in column.split(", ")}
    told: dict[str, Callable[[BehaviourProfile], str]] = {
        "`create` returns": lambda profile: {"blocking": "when it runs", "submitted": "when accepted"}[profile.create],
        "`delete` returns": lambda profile: {"gone": "when it is gone", "submitted": "when accepted"}[profile.delete],
        "the address comes from": lambda profile: f"the {profile.address}",
        "longest `create`, other call": lambda profile: (
            f"{profile.create_deadline_seconds:,} s, {profile.call_deadline_seconds} s"
        ),
    }
    by_heading = {row[0]: row[1:] for row in rows}
    for heading, tell in told.items():
        assert by_heading[heading] == [tell(PROFILES[name]) for name in types], heading
