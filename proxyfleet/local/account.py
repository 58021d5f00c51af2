"""The account that PostgreSQL runs under. It refuses to run as root."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from proxyfleet.local.errors import LocalError

UNPRIVILEGED_ID = 65534
"""``nobody`` on Linux: owns the data where root can't map itself to another user."""

USER_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


@dataclass(frozen=True, slots=True)
class Account:
    """How to start a process that must not be root."""

    prefix: tuple[str, ...] = ()
    """Put before the command line."""
    uid: int | None = None
    """Started as this user and group, when not None; its files must belong to it."""

    def run(self, argv: list[str], *, input_text: str = "") -> None:
        """Run ``argv`` to its end. Raises LocalError with the end of its output when it fails."""
        done = subprocess.run(
            [*self.prefix, *argv],
            input=input_text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
            cwd="/",
            check=False,
        )
        if done.returncode:
            raise LocalError(f"{Path(argv[0]).name} failed with status {done.returncode}: {done.stdout.strip()[-800:]}")

    def can_reach(self, path: Path) -> bool:
        """May this account walk down to ``path``? Root's own files are in a 0700 home more often than not."""
        folders = [folder for folder in path.absolute().parents if folder.exists()]
        return self.uid is None or all(folder.stat().st_mode & stat.S_IXOTH for folder in folders)


def unprivileged_account() -> Account:
    """Ourselves; as root, a user namespace in which root's files belong to an ordinary user; as a last way, ``nobody``.

    Adding a system user or opening a home for others would change the machine beyond this checkout.
    """
    if os.geteuid() != 0:
        return Account()
    if (
        shutil.which("unshare")
        and subprocess.run([*USER_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    ):
        return Account(prefix=USER_NAMESPACE)
    return Account(uid=UNPRIVILEGED_ID)
