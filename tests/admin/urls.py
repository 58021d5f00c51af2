"""Every page of the admin, from its own URL resolver: a new one is in no test's list, and so in all of them."""

from __future__ import annotations

from collections.abc import Iterator

from django.urls import URLPattern, URLResolver, get_resolver, reverse

from tests.admin.filling import Filled

MODELS = {
    "fleet_proxy": "proxy",
    "fleet_proxyevent": "event",
    "leasing_lease": "lease",
    "leasing_endedlease": "ended",
    "leasing_cooldown": "cooldown",
    "leasing_report": "report",
    "leasing_apitoken": "token",
    "auth_user": "user",
    "auth_group": "group",
}
"""Which of the filled objects is that of a model's pages."""

KEYLESS = frozenset({"changelist", "add", "autocomplete"})


def names() -> Iterator[str]:
    """Of all URLs below admin/, with their namespace where it is another than the admin's.

    Those without a name are redirects of Django's for old bookmarks.
    """
    for entry in get_resolver().url_patterns:
        if isinstance(entry, URLResolver) and str(entry.pattern).startswith("admin/"):
            yield from _names(entry, "" if entry.namespace == "admin" else f"{entry.namespace}:")


def _names(resolver: URLResolver, prefix: str) -> Iterator[str]:
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            yield from _names(entry, prefix)
        elif isinstance(entry, URLPattern) and entry.name:
            yield f"{prefix}{entry.name}"


def url_of(name: str, filled: Filled) -> list[str]:
    """With arguments that lead somewhere. Raises KeyError for a page that this does not know yet: tell it here."""
    special: dict[str, list[dict[str, object]]] = {
        "fleet_proxy_edit": [{"proxy_id": filled.proxy.pk}],
        "fleet_proxy_instance": [{"proxy_id": filled.proxy.pk}],
        "fleet_proxy_of_uid": [{"uid": filled.proxy.uid}],
        "fleet_proxy_do": [
            {"name": verb} for verb in ("probe", "reconcile", "cordon", "uncordon", "replace", "skip-cleanup", "delete")
        ],
        "fleet_providerstate_changelist": [{}],
        "fleet_providerstate_change": [{"object_id": "mem"}],
        "fleet_providerstate_check": [{"entry": "mem"}],
        "fleet_providerstate_dry_run": [{"entry": "mem"}],
        "leasing_target_list": [{}],
        "leasing_target_page": [{"target": "shop.example.com"}],
        "auth_user_password_change": [{"id": filled.user.pk}],
        "view_on_site": [{"content_type_id": 1, "object_id": 1}],
        "app_list": [{"app_label": app} for app in ("fleet", "leasing")],
        **{
            name: [{}]
            for name in (
                *("index", "login", "logout", "password_change", "password_change_done"),
                *("autocomplete", "jsi18n", "search", "toggle_sidebar"),
            )
        },
    }
    if name in special:
        return [reverse(f"admin:{name}", kwargs=kwargs) for kwargs in special[name]]
    if ":" in name:
        return [reverse(name)]
    model, _, page = name.rpartition("_")
    what = MODELS[model]
    return [reverse(f"admin:{name}", args=[] if page in KEYLESS else [getattr(filled, what).pk])]
