"""A proxy's spec as a form. It only turns text into values: what they may be is the validator's business."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.utils.text import capfirst
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from proxyfleet.conf import settings
from proxyfleet.fleet.admission import admit
from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.spec import InvalidSpec, Mode, ProxySpec, check_identity

PATHS = {
    "mode": "mode",
    "provider": "provider",
    "zone": "placement.zone",
    "machine_type": "placement.machineType",
    "image": "placement.image",
    "cloud_init": "cloudInit.inline",
    "endpoint_host": "endpoint.host",
    "port": "port",
    # Not `attributes`: a field of that name would hide the form's own `attributes` from every script.
    "attribute_lines": "attributes",
    "max_leases": "maxLeases",
    "drain_seconds": "drainSeconds",
    "health_url": "healthCheck.url",
    "health_interval_seconds": "healthCheck.intervalSeconds",
    "health_timeout_seconds": "healthCheck.timeoutSeconds",
    "failure_threshold": "healthCheck.failureThreshold",
    "success_threshold": "healthCheck.successThreshold",
    "expected_status": "healthCheck.expectedStatus",
}
"""Each field's place in the spec."""

MANAGED_ONLY = frozenset({"provider", "zone", "machine_type", "image", "cloud_init", "cloud_init_removed"})
EXTERNAL_ONLY = frozenset({"endpoint_host"})

# Where an error of a rule between fields, or of a whole part, is shown.
_FIELDS = {path: name for name, path in PATHS.items()} | {
    "namespace": "namespace",
    "name": "name",
    "placement": "zone",
    "cloudInit": "cloud_init",
    "endpoint": "endpoint_host",
    "healthCheck": "health_timeout_seconds",
}


class TextField(forms.CharField):
    """Text of many lines, kept as it is but for the line ends, which browsers turn into CR LF."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(strip=False, **kwargs)

    def to_python(self, value: Any) -> str:
        return (super().to_python(value) or "").replace("\r\n", "\n")

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(super().has_changed(self.to_python(initial), self.to_python(data)))


class NeededField(forms.CharField):
    """Marked as required. Whether it is depends on the mode, so the validator of specs says so."""

    def validate(self, value: Any) -> None:
        """Nothing to add."""


class AttributesField(forms.CharField):
    """A map of strings, one ``key=value`` a line."""

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(f"{key}={text}" for key, text in value.items()) if isinstance(value, Mapping) else value

    def to_python(self, value: Any) -> Any:
        attributes: dict[str, str] = {}
        for number, line in enumerate((value or "").splitlines(), start=1):
            if not line.strip():
                continue
            key, equals, text = (part.strip() for part in line.partition("="))
            if not equals:
                raise forms.ValidationError(f"Line {number}: write key=value.")
            if key in attributes:
                raise forms.ValidationError(f"Line {number}: {key} is there twice.")
            attributes[key] = text
        return attributes

    def validate(self, value: Any) -> None:
        """Nothing to add: no attributes at all are fine."""

    def run_validators(self, value: Any) -> None:
        """Those of CharField are about text."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != initial)
        except forms.ValidationError:
            return True


class StatusCodesField(forms.CharField):
    """HTTP status codes, separated by commas or spaces."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        codes = (value or "").replace(",", " ").split()
        if not all(code.isdecimal() for code in codes):
            raise forms.ValidationError("Write status codes, separated by commas.")
        return [int(code) for code in codes]

    def run_validators(self, value: Any) -> None:
        """Those of CharField are about text."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.to_python(data) != initial)
        except forms.ValidationError:
            return True


def _text(label: str, help_text: str = "", *, required: bool = False) -> forms.CharField:
    return forms.CharField(label=label, help_text=help_text, required=required, widget=UnfoldAdminTextInputWidget())


def _number(label: str, help_text: str = "") -> forms.IntegerField:
    return forms.IntegerField(label=label, help_text=help_text, widget=UnfoldAdminIntegerFieldWidget())


class ProxyForm(forms.Form):
    """Declares a proxy, or edits ``proxy``."""

    use_required_attribute = False  # else the browser would refuse to send what the other mode hides

    namespace = _text("Namespace", required=True)
    name = _text("Name", "Lower-case letters, digits, dots and dashes.", required=True)
    mode = forms.CharField(
        label="Mode",
        help_text="Managed: made and replaced by a provider. External: exists elsewhere; only probed and leased.",
        widget=UnfoldAdminSelectWidget(choices=[(mode.value, mode.value) for mode in Mode]),
    )
    provider = NeededField(
        label="Provider", help_text="An entry of the providers file.", widget=UnfoldAdminSelectWidget()
    )
    zone = _text("Zone", "Host, node or zone; what it means is the provider's. Empty: the provider chooses.")
    machine_type = _text("Machine type")
    image = _text("Image")
    cloud_init = TextField(
        label="Cloud-init",
        required=False,
        help_text="User-data for the instance, in any format.",
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 8, "spellcheck": "false", "class": "fleet-code"}),
    )
    cloud_init_removed = forms.BooleanField(
        label="Remove the cloud-init", required=False, widget=UnfoldBooleanSwitchWidget()
    )
    endpoint_host = NeededField(
        label="Host",
        help_text="An IPv4 or IPv6 address, or a DNS name.",
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "proxy.example.com"}),
    )
    port = _number("Port", "Where the proxy listens.")
    attribute_lines = AttributesField(
        label="Attributes",
        required=False,
        help_text="What selectors match: one key=value a line.",
        widget=UnfoldAdminTextareaWidget(
            attrs={"rows": 4, "spellcheck": "false", "class": "fleet-code", "placeholder": "region=eu\ntier=gold"}
        ),
    )
    max_leases = _number("Max leases", "How many lessees may use it at the same time.")
    drain_seconds = _number("Drain seconds", "How long a replacement or deletion waits for leases to end.")
    health_url = _text("Probe URL", "Fetched through the proxy.")
    health_interval_seconds = _number("Interval seconds")
    health_timeout_seconds = _number("Timeout seconds", "At most the interval.")
    failure_threshold = _number("Failure threshold", "Failed probes in a row until it is Unhealthy.")
    success_threshold = _number("Success threshold", "Good probes in a row until it is healthy again.")
    expected_status = StatusCodesField(
        label="Expected status",
        required=False,
        help_text="As 200, 204. Empty: any 2xx or 3xx.",
        widget=UnfoldAdminTextInputWidget(),
    )
    generation = forms.IntegerField(required=False, widget=forms.HiddenInput())

    def __init__(self, data: Mapping[str, Any] | None, *, entries: tuple[str, ...], proxy: Proxy | None = None) -> None:
        """``entries`` are the names that the providers file has now."""
        self.proxy = proxy
        self._stored = proxy.spec.declared() if proxy else {}
        super().__init__(data, initial=self._initial(entries))
        self.fields["health_url"].help_text += f" Empty: {settings().healthcheck_url}"
        names = dict.fromkeys((*entries, *filter(None, [self.initial["provider"]])))
        self.fields["provider"].widget.choices = [(name, name) for name in names] or [("", "no provider is configured")]
        if proxy:
            for fixed in ("namespace", "name", "mode"):
                self.fields[fixed].disabled = True
        self._mask_cloud_init()

    def _mask_cloud_init(self) -> None:
        """It may hold secrets, so nobody gets to see it again: what is there can be kept, replaced or removed."""
        if self.proxy is not None and self.proxy.cloud_init_inline is not None:
            self.initial["cloud_init"] = ""
            size = len(self.proxy.cloud_init_inline.encode())
            self.fields[
                "cloud_init"
            ].help_text = (
                f"{size} bytes are declared, which are not shown. Left empty, they stay; text here takes their place."
            )
        elif self.proxy is not None and self.proxy.cloud_init_secret_name:
            secret = f"{self.proxy.cloud_init_secret_name}, key {self.proxy.cloud_init_secret_key}"
            self.fields["cloud_init"].help_text = f"Comes from the Secret {secret}. Text here takes its place."
            self.fields["cloud_init_removed"].label = "Remove the reference to the Secret"
        else:
            del self.fields["cloud_init_removed"]

    def _initial(self, entries: tuple[str, ...]) -> dict[str, Any]:
        shown = self._stored or ProxySpec.model_construct().declared()
        initial = {name: _find(shown, path) for name, path in PATHS.items()}
        if self.proxy:
            return initial | {
                "namespace": self.proxy.namespace,
                "name": self.proxy.name,
                "generation": self.proxy.generation,
            }
        return initial | {"namespace": "default", "provider": entries[0] if entries else ""}

    def clean(self) -> dict[str, Any]:
        values: dict[str, Any] = super().clean() or self.cleaned_data
        if values.get("cloud_init") and values.get("cloud_init_removed"):
            self.add_error("cloud_init_removed", "There is text as well: do one or the other.")
        if {"namespace", "name"} <= values.keys():
            self._check(lambda: check_identity(values["namespace"], values["name"]))
        self._check(lambda: admit(self.declared()))
        return values

    def _check(self, rule: Callable[[], object]) -> None:
        try:
            rule()
        except InvalidSpec as error:
            self.add_spec_errors(error)

    def declared(self) -> dict[str, Any]:
        """The spec that the form declares.

        Of a proxy that exists, parts that nobody touched stay exactly as they are stored, with those that the form
        does not show. Fields of the other mode are hidden: what they still hold from before the mode was switched is
        not meant.
        """
        declared: dict[str, Any] = copy.deepcopy(self._stored)
        hidden = MANAGED_ONLY if self.cleaned_data.get("mode") == Mode.EXTERNAL else EXTERNAL_ONLY
        for name in self.changed_data if self.proxy else PATHS:
            if name in PATHS and name in self.cleaned_data and name not in hidden:
                _put(declared, PATHS[name], self.cleaned_data[name])
        if self.cleaned_data.get("cloud_init_removed"):
            declared.pop("cloudInit", None)
        elif _find(self._stored, "cloudInit.secretRef") and "cloud_init" in self.changed_data:
            declared["cloudInit"].pop("secretRef", None)
        return declared

    def add_spec_errors(self, error: InvalidSpec) -> None:
        """Show each error at its field; one that has no field here, above the form."""
        for path, messages in error.errors.items():
            field = _field_of(path)
            for message in messages:
                self.add_error(field, capfirst(message) if field else f"{path}: {message}")

    def changed_labels(self) -> list[str]:
        """The fields that were edited, as a person reads them; never what they hold."""
        return [str(self.fields[name].label) for name in self.changed_data if name in (*PATHS, "cloud_init_removed")]


def _field_of(path: str) -> str | None:
    """The field of the longest known beginning of ``path``: ``attributes.a/b`` belongs to ``attributes``."""
    while path not in _FIELDS:
        path, dot, _ = path.rpartition(".")
        if not dot:
            return None
    return _FIELDS[path]


def _find(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _put(spec: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at ``path``; an empty one is the same as none."""
    *parents, last = path.split(".")
    if value in ("", None):
        spec = _find(spec, ".".join(parents)) if parents else spec
        if spec:
            spec.pop(last, None)
        return
    for key in parents:
        spec = spec.setdefault(key, {})
    spec[last] = value
