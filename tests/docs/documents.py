"""All Markdown for users, and the commands in it.

A block of commands says behind ``sh`` where it is run: ``host`` has the product's settings, a database and PostgreSQL's
programs; ``cluster`` has kubectl and make, and the objects that the documents speak of; ``elsewhere`` takes what the
tests have not (Docker, a cloud, a hypervisor). Those of README.md are run by tests/test_first_run.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = ("host", "cluster", "elsewhere")
FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def blocks(self) -> list[Block]:
        """Its commands."""
        found = []
        for match in FENCE.finditer(self.text):
            language, _, place = match["info"].partition(" ")
            if language == "sh":
                found.append(Block(place, re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)))
        return found

    def script(self, place: str) -> str:
        """All commands for ``place``, in their order."""
        return "\n".join(block.text for block in self.blocks if block.place == place)

    @property
    def headings(self) -> set[str]:
        """The anchors that GitHub makes of them."""
        lines = re.findall(r"^#+ (.+)$", FENCE.sub("", self.text), re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", line.replace("`", "").lower()).replace(" ", "-") for line in lines}


DOCUMENTS = [
    Document(path)
    for path in [ROOT / "README.md", ROOT / "client" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
]


def with_commands(place: str) -> list[Document]:
    return [document for document in DOCUMENTS if document.script(place)]
