"""What the throttle of sign-in remembers."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class FailedSignIns(models.Model):
    """Failures in a row from one address, or of one user name from one address. Goes when nobody asks for it."""

    # A hash: people type passwords where the user name belongs.
    key = models.CharField(max_length=64, primary_key=True)
    failures = models.PositiveIntegerField()
    last_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["last_at"], name="failed_sign_ins_age")]

    def __str__(self) -> str:
        return f"{self.failures} until {self.last_at:%Y-%m-%d %H:%M:%S}"
