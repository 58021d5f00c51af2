"""Leases, what became of them, and what keeps a proxy from being leased for a while."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models

from leasing.tokens import Scope
from proxyfleet.fleet.models import Proxy

OWNER_LENGTH = 100
CLIENT_LENGTH = 200
TARGET_LENGTH = 253


class EndCause(models.TextChoices):
    """Why a lease ended. The last four are given by the fleet."""

    RELEASED = "released", "released by the lessee"
    RELEASED_BY_OPERATOR = "released_by_operator", "released by an operator"
    EXPIRED = "expired", "expired"
    PROXY_DELETED = "proxy_deleted", "proxy deleted"
    PROXY_REPLACED = "proxy_replaced", "proxy replaced"
    INSTANCE_LOST = "instance_lost", "instance lost"
    ADDRESS_CHANGED = "address_changed", "address changed"


class Result(models.TextChoices):
    """How a request through a leased proxy went."""

    OK = "ok"
    RATE_LIMITED = "rate_limited", "rate limited"
    BLOCKED = "blocked"
    TIMEOUT = "timeout"
    ERROR = "error"


REFUSALS = frozenset({Result.RATE_LIMITED, Result.BLOCKED})
"""The target turned the proxy away: the proxy rests, for this target only."""


class ProxyLoad(models.Model):
    """How many leases a proxy has, in a narrow row of its own.

    Every lease updates this row twice, so no column that a lease changes is indexed: each update would become a new
    index entry and bloat the table.
    """

    proxy = models.OneToOneField(Proxy, on_delete=models.CASCADE, primary_key=True, related_name="load")
    leasable = models.BooleanField()
    max_leases = models.PositiveIntegerField()
    active = models.PositiveIntegerField(default=0)
    ceiling = models.PositiveIntegerField()
    """What ``active`` may reach: ``max_leases``, or more as long as that was lowered below the leases already out.

    A grant never writes it, so the constraint on it stops any grant too many, whatever the query that tries.
    """
    idle_since = models.DateTimeField(null=True)
    """When a lease last began or ended here; none: never."""
    generation = models.PositiveBigIntegerField(default=0)
    """Of the proxy's spec, whose attributes selectors ask for."""
    version = models.BigIntegerField(default=0)
    """The transaction that last published the proxy: leases and their ends leave it alone."""

    class Meta:
        verbose_name = "load"
        # An update that changes no indexed column stays HOT, and none of a counter does.
        indexes: ClassVar = [models.Index(fields=["version"], name="load_version")]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(active__gte=0, active__lte=models.F("ceiling"), max_leases__lte=models.F("ceiling")),
                name="load_within_ceiling",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.active}/{self.max_leases}"


class Lease(models.Model):
    """The right to use a proxy until a time. A row is a lease that nobody has ended yet, even when its time is over."""

    id = models.UUIDField(primary_key=True, editable=False)
    # The load row, locked by every grant, already vouches for the proxy; a constraint would lock the wide row as well.
    # A proxy that still has leases can't be deleted: they end first, with a cause.
    proxy = models.ForeignKey(Proxy, on_delete=models.RESTRICT, related_name="leases", db_constraint=False)
    owner = models.CharField(max_length=OWNER_LENGTH, blank=True)
    """Name of the token that took it; empty when the API is open."""
    client = models.CharField(max_length=CLIENT_LENGTH, blank=True)
    """What the lessee calls itself."""
    target = models.CharField(max_length=TARGET_LENGTH, blank=True)
    """Host that it is for; empty: any."""
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [models.Index(fields=["expires_at"], name="lease_expiry")]

    def __str__(self) -> str:
        return str(self.id)


class EndedLease(models.Model):
    """A lease that is over, and why. Outlives its proxy, until retention."""

    id = models.UUIDField(primary_key=True, editable=False)
    proxy_uid = models.UUIDField()
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    owner = models.CharField(max_length=OWNER_LENGTH, blank=True)
    client = models.CharField(max_length=CLIENT_LENGTH, blank=True)
    target = models.CharField(max_length=TARGET_LENGTH, blank=True)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    cause = models.CharField(max_length=32, choices=EndCause)

    class Meta:
        verbose_name = "ended lease"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["ended_at"], name="ended_lease_age"),
            models.Index(fields=["proxy_uid", "-ended_at"], name="ended_lease_of_proxy"),
        ]

    def __str__(self) -> str:
        return str(self.id)


class Cooldown(models.Model):
    """A proxy rests for one target, which blocked it. It stays leasable for every other."""

    # A constraint would have a report wait for whoever holds the proxy's row, who may wait for the reported lease.
    proxy = models.ForeignKey(Proxy, on_delete=models.CASCADE, related_name="cooldowns", db_constraint=False)
    target = models.CharField(max_length=TARGET_LENGTH)
    until = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [models.UniqueConstraint(fields=["target", "proxy"], name="cooldown_unique")]
        indexes: ClassVar = [models.Index(fields=["until"], name="cooldown_end")]

    def __str__(self) -> str:
        return f"{self.proxy} for {self.target}"


class Report(models.Model):
    """What a lessee said of one request. Outlives lease and proxy, until retention."""

    lease_id = models.UUIDField()
    proxy_uid = models.UUIDField()
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    target = models.CharField(max_length=TARGET_LENGTH, blank=True)
    result = models.CharField(max_length=12, choices=Result)
    at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["at", "target"], include=["result"], name="report_recent"),
            models.Index(fields=["proxy_uid", "-at"], name="report_of_proxy"),
            models.Index(fields=["target", "id"], name="report_of_target"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} {self.target} {self.result}"


class ApiToken(models.Model):
    """A bearer token of the API. Only its hash is kept: the token itself is shown once, to whoever makes it."""

    name = models.CharField(
        max_length=OWNER_LENGTH,
        unique=True,
        validators=[
            RegexValidator(
                r"\A[A-Za-z0-9][A-Za-z0-9._ -]*\Z", "Use letters, digits, spaces, dots, dashes and underscores."
            )
        ],
        help_text="Who or what uses it. Leases keep this name.",
    )
    hash = models.CharField(max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=12, editable=False, help_text="How the token begins, to recognise it by.")
    scopes = ArrayField(models.CharField(max_length=8, choices=[(scope.value, scope.value) for scope in Scope]))
    expires_at = models.DateTimeField(null=True, blank=True, help_text="Empty: never.")
    requests_per_second = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="What it may ask of each web process. Empty: what PROXYFLEET_TOKEN_RATE_LIMIT says.",
    )
    created_at = models.DateTimeField(editable=False)
    created_by = models.CharField(max_length=150, editable=False)
    last_used_at = models.DateTimeField(null=True, editable=False)
    revoked_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        verbose_name = "API token"
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class IdempotencyKey(models.Model):
    """The ids of the leases that a keyed request gets, chosen before they are granted, so that a retry finds them."""

    owner = models.CharField(max_length=OWNER_LENGTH, blank=True)
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    """Hash of what was asked for: the same key for something else is a mistake of the client's."""
    lease_ids = ArrayField(models.UUIDField())
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["owner", "key"], name="idempotency_key_unique")]
        indexes: ClassVar = [models.Index(fields=["created_at"], name="idempotency_key_age")]

    def __str__(self) -> str:
        return self.key
