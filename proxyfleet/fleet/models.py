"""What is wanted of each proxy, what it is, and what happened to it.

Each status column has one writer, named above it.
"""

from __future__ import annotations

import uuid
from enum import StrEnum
from typing import ClassVar

from django.contrib.postgres.indexes import GinIndex
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Case, F, Func, Value, When
from django.utils import timezone

from proxyfleet.fleet.columns import read_spec, write_spec
from proxyfleet.fleet.phases import Phase, Verdict
from proxyfleet.fleet.spec import Mode, ProxySpec


class Origin(models.TextChoices):
    CLUSTER = "cluster", "cluster"
    """A custom resource owns the spec."""
    DATABASE = "database", "database"
    """Declared in the admin or through REST."""


def _choices(values: type[StrEnum]) -> list[tuple[str, str]]:
    """For a pure enumeration, shown as it is written."""
    return [(value.value, value.value) for value in values]


ATTENTION_PHASES = (Phase.FAILED, Phase.UNHEALTHY, Phase.TERMINATING, Phase.PENDING, Phase.PROVISIONING)
"""Phases in which few proxies are, and none should stay: what needs a person is looked for there alone."""


class Proxy(models.Model):
    """A proxy that an operator declared."""

    # Identity
    uid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    namespace = models.CharField(max_length=63, default="default")
    name = models.CharField(max_length=253)
    origin = models.CharField(max_length=8, choices=Origin, default=Origin.DATABASE, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    # Spec: written by operations (and, for a proxy of the cluster, by the bridge through them).
    mode = models.CharField(max_length=8, choices=_choices(Mode), default=Mode.MANAGED.value)
    provider = models.CharField(max_length=63, blank=True)
    zone = models.CharField(max_length=253, blank=True)
    machine_type = models.CharField(max_length=253, blank=True)
    image = models.CharField(max_length=2048, blank=True)
    cloud_init_inline = models.TextField(null=True, blank=True)  # noqa: DJ001  empty user-data differs from none
    cloud_init_secret_name = models.CharField(max_length=253, blank=True)
    cloud_init_secret_key = models.CharField(max_length=253, blank=True)
    endpoint_host = models.CharField(max_length=253, blank=True)
    credentials_secret_name = models.CharField(max_length=253, blank=True)
    port = models.PositiveIntegerField(default=3128, validators=[MinValueValidator(1), MaxValueValidator(65_535)])
    attributes = models.JSONField(default=dict, blank=True)
    max_leases = models.PositiveIntegerField(default=10, validators=[MinValueValidator(1)])
    drain_seconds = models.PositiveIntegerField(default=0)
    health_url = models.CharField(max_length=2048, blank=True)
    health_interval_seconds = models.PositiveIntegerField(default=30, validators=[MinValueValidator(1)])
    health_timeout_seconds = models.PositiveIntegerField(default=10, validators=[MinValueValidator(1)])
    failure_threshold = models.PositiveIntegerField(default=3, validators=[MinValueValidator(1)])
    success_threshold = models.PositiveIntegerField(default=1, validators=[MinValueValidator(1)])
    expected_status = models.JSONField(default=list, blank=True)

    # Intent beside the spec: written by operations.
    generation = models.PositiveBigIntegerField(default=1, editable=False)
    # Part of the instance hash: +1 makes the instance obsolete.
    replacement = models.PositiveIntegerField(default=0, editable=False)
    cordoned = models.BooleanField(default=False, editable=False)
    skip_cleanup = models.BooleanField(default=False, editable=False)
    deletion_requested_at = models.DateTimeField(null=True, editable=False)

    # Status: written by the reconciler.
    phase = models.CharField(
        max_length=12,
        choices=_choices(Phase),
        default=Phase.PENDING.value,
        editable=False,
    )
    reason = models.CharField(max_length=64, blank=True, editable=False)
    message = models.TextField(blank=True, editable=False)
    conditions = models.JSONField(default=list, editable=False)
    provider_id = models.CharField(max_length=1024, blank=True, editable=False)
    instance_hash = models.CharField(max_length=16, blank=True, editable=False)
    # +1 with each new instance or address: a verdict belongs to one serial.
    instance_serial = models.PositiveIntegerField(default=0, editable=False)
    # A create of this hash was tried, and whether it made something is not known.
    creating_hash = models.CharField(max_length=16, blank=True, editable=False)
    # The entry that was asked to create it.
    creating_provider = models.CharField(max_length=63, blank=True, editable=False)
    # The provider said of this hash that it can't work; forgotten when anything about the proxy is changed.
    failed_hash = models.CharField(max_length=16, blank=True, editable=False)
    address = models.CharField(max_length=253, blank=True, editable=False)
    address_port = models.PositiveIntegerField(null=True, editable=False)
    observed_generation = models.PositiveBigIntegerField(default=0, editable=False)
    provisioning_since = models.DateTimeField(null=True, editable=False)
    draining_since = models.DateTimeField(null=True, editable=False)
    error_since = models.DateTimeField(null=True, editable=False)
    # Provider calls that failed in a row.
    call_errors = models.PositiveIntegerField(default=0, editable=False)
    # Instances in a row that never got Ready.
    instance_failures = models.PositiveIntegerField(default=0, editable=False)
    phase_changed_at = models.DateTimeField(default=timezone.now, editable=False)
    # +1 with each change that a person could see, be it only an event: what is newer than `published_revision` is news.
    revision = models.PositiveBigIntegerField(default=0, editable=False)

    # Status: written by health.
    verdict = models.CharField(
        max_length=9,
        choices=_choices(Verdict),
        default=Verdict.UNKNOWN.value,
        editable=False,
    )
    # The instance_serial that the verdict and the counters belong to.
    probed_serial = models.PositiveIntegerField(default=0, editable=False)
    probe_successes = models.PositiveIntegerField(default=0, editable=False)
    probe_failures = models.PositiveIntegerField(default=0, editable=False)
    last_outcome = models.CharField(max_length=32, blank=True, editable=False)
    health_message = models.TextField(blank=True, editable=False)
    health_changed_at = models.DateTimeField(null=True, editable=False)
    egress_ip = models.GenericIPAddressField(null=True, editable=False)
    # Names of headers in which the proxy told the target whom it works for, where the probe URL shows them.
    leaking_headers = models.CharField(max_length=128, blank=True, editable=False)

    # Status: written by the bridge to the cluster.
    # The revision that the custom resource shows.
    published_revision = models.PositiveBigIntegerField(default=0, editable=False)
    # The last event of this proxy that the cluster has been told of.
    published_event = models.PositiveBigIntegerField(default=0, editable=False)

    # The provider entry whose queue works on this proxy: that of the instance, while there is one.
    lane = models.GeneratedField(
        expression=Case(
            When(provider_id="", then=F("provider")),
            default=Func(
                F("provider_id"), Value("://"), Value(1), function="split_part", output_field=models.CharField()
            ),
        ),
        output_field=models.CharField(max_length=63),
        db_persist=True,
    )

    # Scheduling: `next_reconcile_at` is set by whoever changes something and cleared by the claim that takes it up.
    next_reconcile_at = models.DateTimeField(null=True, default=timezone.now, editable=False)
    retry_at = models.DateTimeField(null=True, editable=False)
    claim_token = models.UUIDField(null=True, editable=False)
    claim_expires_at = models.DateTimeField(null=True, editable=False)

    class Meta:
        verbose_name_plural = "proxies"
        ordering: ClassVar = ["namespace", "name", "id"]
        constraints: ClassVar = [
            # A proxy on its way out does not block its name.
            models.UniqueConstraint(
                fields=["namespace", "name"], condition=models.Q(deletion_requested_at=None), name="proxy_name_unique"
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["next_reconcile_at", "lane"],
                condition=models.Q(next_reconcile_at__isnull=False),
                name="proxy_due",
            ),
            models.Index(
                fields=["claim_expires_at"], condition=models.Q(claim_token__isnull=False), name="proxy_claimed"
            ),
            models.Index(
                fields=["id"],
                condition=models.Q(origin=Origin.CLUSTER, revision__gt=F("published_revision")),
                name="proxy_unpublished",
            ),
            models.Index(fields=["provider", "phase"], name="proxy_provider_phase"),
            models.Index(
                fields=["phase_changed_at"],
                condition=models.Q(phase__in=[phase.value for phase in ATTENTION_PHASES]),
                name="proxy_attention",
            ),
            models.Index(fields=["namespace", "name", "id"], name="proxy_order"),
            models.Index(fields=["egress_ip"], condition=models.Q(egress_ip__isnull=False), name="proxy_egress"),
            GinIndex(fields=["attributes"], opclasses=["jsonb_path_ops"], name="proxy_attributes"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_external(self) -> bool:
        return self.mode == Mode.EXTERNAL

    @property
    def current_verdict(self) -> Verdict:
        """The verdict on the instance of now; that on an earlier one counts for nothing."""
        return Verdict(self.verdict) if self.probed_serial == self.instance_serial else Verdict.UNKNOWN

    @property
    def is_leasable(self) -> bool:
        return self.phase == Phase.READY and not self.cordoned and self.deletion_requested_at is None

    @property
    def spec(self) -> ProxySpec:
        return read_spec(self)

    @spec.setter
    def spec(self, spec: ProxySpec) -> None:
        write_spec(self, spec)


class EventKind(models.TextChoices):
    DECLARED = "Declared"
    SPEC_CHANGED = "SpecChanged"
    PHASE_CHANGED = "PhaseChanged"
    INSTANCE_CREATED = "InstanceCreated"
    INSTANCE_LOST = "InstanceLost"
    INSTANCE_DELETED = "InstanceDeleted"
    INSTANCE_ABANDONED = "InstanceAbandoned"
    PROVIDER_ERROR = "ProviderError"
    HEALTH_CHANGED = "HealthChanged"
    REPLACEMENT_REQUESTED = "ReplacementRequested"
    DELETION_REQUESTED = "DeletionRequested"
    CORDONED = "Cordoned"
    UNCORDONED = "Uncordoned"
    SKIP_CLEANUP_REQUESTED = "SkipCleanupRequested"
    SKIP_CLEANUP_WITHDRAWN = "SkipCleanupWithdrawn"
    RELEASED = "Released"
    ORPHAN_DELETED = "OrphanDeleted"
    PROBE_TARGET_SUSPECT = "ProbeTargetSuspect"
    PROBE_TARGET_CLEARED = "ProbeTargetCleared"
    EGRESS_SHARED = "EgressShared"
    ADDRESS_LEAKED = "AddressLeaked"


class ProxyEvent(models.Model):
    """One thing that happened to a proxy. Outlives the proxy, until retention."""

    proxy = models.ForeignKey(Proxy, on_delete=models.SET_NULL, null=True, related_name="events")
    proxy_uid = models.UUIDField()
    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    at = models.DateTimeField()
    kind = models.CharField(max_length=24, choices=EventKind)
    reason = models.CharField(max_length=64, blank=True)
    message = models.TextField(blank=True)
    old_phase = models.CharField(max_length=12, blank=True)
    new_phase = models.CharField(max_length=12, blank=True)
    # The person or token that asked for it; empty: the product itself.
    actor = models.CharField(max_length=150, blank=True)

    class Meta:
        verbose_name = "event"
        ordering: ClassVar = ["-id"]
        indexes: ClassVar = [
            models.Index(fields=["proxy_uid", "-id"], name="event_of_proxy"),
            models.Index(fields=["at"], name="event_age"),
            # For the admin's list: its filter, and its search for any part of a name.
            models.Index(fields=["kind", "id"], name="event_of_kind"),
            GinIndex(fields=["name"], opclasses=["gin_trgm_ops"], name="event_name_part"),
        ]

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.namespace}/{self.name} {self.kind}"


class ProviderState(models.Model):
    """What the schedules remember of a provider entry; `external` stands for the External proxies."""

    entry = models.CharField(max_length=63, primary_key=True)

    # Written by health.
    # Every slot up to here has been served.
    probed_until = models.DateTimeField(null=True)
    probe_claim_token = models.UUIDField(null=True)
    probe_claim_expires_at = models.DateTimeField(null=True)
    # Probes that still ran when a turn was over: proxy, instance serial, and when they end at the latest, in ms.
    probes_left_running = models.JSONField(default=list)

    # Written by the orphan GC.
    orphans_swept_at = models.DateTimeField(null=True)
    # What the last sweep found: providerID, owner, age and what was done.
    orphans = models.JSONField(default=list)
    orphans_error = models.TextField(blank=True)

    # What the last check of the backend said: written by health, when it changes.
    # None: not checked yet.
    check_ready = models.BooleanField(null=True)
    check_reason = models.CharField(max_length=64, blank=True)
    check_message = models.TextField(blank=True)
    # One for each host, node or zone: name, ready, reason, message, lastTransitionTime.
    check_targets = models.JSONField(default=list)
    check_changed_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "provider"
        ordering: ClassVar = ["entry"]

    def __str__(self) -> str:
        return self.entry


class PromptProbe(models.Model):
    """Somebody wants this proxy probed before its slot. Written by health."""

    proxy = models.OneToOneField(Proxy, on_delete=models.CASCADE, primary_key=True)
    # The turn that probes it now; none: it waits for one.
    turn = models.UUIDField(null=True)

    def __str__(self) -> str:
        return f"prompt probe of {self.proxy_id}"


class ProbeTarget(models.Model):
    """What health suspects of a probe URL's host: there is a row only while it suspects something."""

    # Host and port.
    host = models.CharField(max_length=300, primary_key=True)
    # The breaker is open since then: failures beyond the proxy count against none. None: still being weighed.
    suspect_since = models.DateTimeField(null=True)
    # When the breaker opened: where the probes failed, how many proxies' did, of how many, and what one of them said.
    stage = models.CharField(max_length=16, blank=True)
    failed = models.PositiveIntegerField(default=0)
    heard = models.PositiveIntegerField(default=0)
    message = models.TextField(blank=True)
    # The proxies whose failures opened it.
    witnesses = models.JSONField(default=list)
    # What was heard of each proxy of late, as `health.suspicion` keeps it.
    evidence = models.JSONField(default=list)

    class Meta:
        verbose_name = "probe target"
        ordering: ClassVar = ["host"]

    def __str__(self) -> str:
        return self.host


class SecretUse(models.TextChoices):
    """What a Secret of the cluster may be used for: its owner says so by a label."""

    CLOUD_INIT = "cloud-init", "cloud-init"
    CREDENTIALS = "proxy-credentials", "proxy credentials"


class MirroredSecret(models.Model):
    """A labelled Secret of the cluster, for workers that have no way to it. Written by the bridge."""

    namespace = models.CharField(max_length=63)
    name = models.CharField(max_length=253)
    use = models.CharField(max_length=20, choices=SecretUse)
    # As in the Secret: base64 by key.
    data = models.JSONField(default=dict)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["namespace", "name", "use"], name="mirrored_secret_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.use})"


class ClusterMirror(models.Model):
    """Whether the rows show all of the cluster's Proxy objects: one row, the leading bridge's sign of life."""

    id = models.BooleanField(primary_key=True, default=True)
    # The first lists were done and the watches alive at this moment.
    complete_at = models.DateTimeField(null=True)
    # The only one that is watched; empty: all of them.
    namespace = models.CharField(max_length=63, blank=True)
    # Which cluster that is; empty: not known.
    cluster_uid = models.CharField(max_length=36, blank=True)
    # The bridge that leads, by what it calls itself in its Lease, and when it last did.
    leader = models.CharField(max_length=253, blank=True)
    led_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=models.Q(id=True), name="cluster_mirror_single")]

    def __str__(self) -> str:
        return self.namespace or "all namespaces"
