"""The one validator: what is refused, and with which words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyfleet.fleet.models import Proxy
from proxyfleet.fleet.spec import InvalidSpec, ProxySpec, check_host, check_identity

MANAGED = {"provider": "here"}
EXTERNAL = {"mode": "External", "endpoint": {"host": "192.0.2.1"}}


@pytest.mark.parametrize(
    ("declared", "path", "words"),
    [
        ({}, "provider", "needs one"),
        (MANAGED | {"endpoint": {"host": "192.0.2.1"}}, "endpoint", "only an External proxy"),
        ({"mode": "External"}, "endpoint.host", "needs one"),
        (EXTERNAL | {"provider": "here"}, "provider", "only a Managed proxy"),
        (EXTERNAL | {"placement": {"zone": "z"}}, "placement", "only a Managed proxy"),
        (EXTERNAL | {"cloudInit": {"inline": "x"}}, "cloudInit", "only a Managed proxy"),
        (EXTERNAL | {"endpoint": {"host": "not a host"}}, "endpoint.host", "IPv4 address"),
        (EXTERNAL | {"endpoint": {"host": "127.1"}}, "endpoint.host", "IPv4 address"),
        (EXTERNAL | {"endpoint": {"host": "0x7f.0.0.1"}}, "endpoint.host", "IPv4 address"),
        (EXTERNAL | {"endpoint": {"host": "169.254.169.254"}}, "endpoint.host", "metadata"),
        (EXTERNAL | {"endpoint": {"host": "[fe80::1]"}}, "endpoint.host", "metadata"),
        (EXTERNAL | {"endpoint": {"host": "::ffff:169.254.169.254"}}, "endpoint.host", "metadata"),
        (EXTERNAL | {"endpoint": {"host": "fd00:ec2::254"}}, "endpoint.host", "metadata"),
        (EXTERNAL | {"endpoint": {"host": "0.0.0.0"}}, "endpoint.host", "connect to"),
        (EXTERNAL | {"endpoint": {"host": "2001:db8::1%eth0\n<b>"}}, "endpoint.host", "scope"),
        (EXTERNAL | {"endpoint": {"host": "::1%" + "a" * 300}}, "endpoint.host", "scope"),
        ({"mode": "Borrowed"}, "mode", "'Managed' or 'External'"),
        (MANAGED | {"port": 0}, "port", "greater than or equal to 1"),
        (MANAGED | {"port": 65_536}, "port", "less than or equal to 65535"),
        (MANAGED | {"port": "3128"}, "port", "valid integer"),
        (MANAGED | {"port": True}, "port", "valid integer"),
        (MANAGED | {"maxLeases": 0}, "maxLeases", "greater than or equal to 1"),
        (MANAGED | {"drainSeconds": -1}, "drainSeconds", "greater than or equal to 0"),
        (MANAGED | {"prot": 3128}, "prot", "not a field"),
        (MANAGED | {"placement": {"region": "eu"}}, "placement.region", "not a field"),
        (MANAGED | {"attributes": {"-geo": "eu"}}, "attributes", "'-geo' is not a label key"),
        (MANAGED | {"attributes": {"geo": "e" * 64}}, "attributes", "'geo' must be at most 63"),
        (MANAGED | {"attributes": {"geo": 1}}, "attributes.geo", "valid string"),
        (MANAGED | {"attributes": {f"k{n}": "v" for n in range(33)}}, "attributes", "at most 32"),
        (MANAGED | {"cloudInit": {"inline": "a", "secretRef": {"name": "b"}}}, "cloudInit", "not both"),
        (MANAGED | {"cloudInit": {"inline": "é" * 131_073}}, "cloudInit.inline", "262144 bytes"),
        (MANAGED | {"cloudInit": {"secretRef": {"name": "Squid"}}}, "cloudInit.secretRef.name", "[a-z0-9.-]"),
        (MANAGED | {"cloudInit": {"inline": "a\x00b"}}, "cloudInit.inline", "NUL"),
        (MANAGED | {"placement": {"zone": "a\x00"}}, "placement.zone", "NUL"),
        (MANAGED | {"placement": {"zone": "\ud800"}}, "placement.zone", "unicode"),
        (MANAGED | {"healthCheck": {"timeoutSeconds": 31}}, "healthCheck.timeoutSeconds", "must not be greater"),
        (MANAGED | {"healthCheck": {"intervalSeconds": 0}}, "healthCheck.intervalSeconds", "greater than or equal"),
        (MANAGED | {"healthCheck": {"url": "ftp://x"}}, "healthCheck.url", "'http' or 'https'"),
        (MANAGED | {"healthCheck": {"url": "https://me:pw@x"}}, "healthCheck.url", "user name or password"),
        (MANAGED | {"healthCheck": {"url": "http://x/\r\nHost: y"}}, "healthCheck.url", "control characters"),
        (MANAGED | {"healthCheck": {"url": " http://x/"}}, "healthCheck.url", "control characters"),
        (MANAGED | {"healthCheck": {"url": "http://169.254.169.254/latest"}}, "healthCheck.url", "metadata"),
        (MANAGED | {"healthCheck": {"url": "http://0xa9fea9fe/"}}, "healthCheck.url", "metadata"),
        (MANAGED | {"healthCheck": {"url": "http://[fd00:ec2::254]/"}}, "healthCheck.url", "metadata"),
        (MANAGED | {"healthCheck": {"expectedStatus": [99]}}, "healthCheck.expectedStatus.0", "greater than or equal"),
    ],
)
def test_a_wrong_field_is_named_by_its_path(declared: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        ProxySpec.parse(declared)
    assert list(caught.value.errors) == [path]
    assert words in caught.value.errors[path][0]


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(InvalidSpec) as caught:
        ProxySpec.parse({"provider": "here", "port": 0, "maxLeases": 0, "healthCheck": {"failureThreshold": 0}})
    assert set(caught.value.errors) == {"port", "maxLeases", "healthCheck.failureThreshold"}


@pytest.mark.parametrize(
    ("host", "kept"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("[2001:DB8::1]", "2001:db8::1"),
        ("Proxy.Example.com", "proxy.example.com"),
        ("box0x.example.com", "box0x.example.com"),
        ("squid_1", "squid_1"),
        ("127.0.0.1", "127.0.0.1"),
    ],
)
def test_a_host_is_kept_in_one_form(host: str, kept: str) -> None:
    assert check_host(host) == kept


@pytest.mark.parametrize(
    ("namespace", "name"), [("", "a"), ("a.b", "a"), ("a", ""), ("a", "-a"), ("a", "A"), ("a", "a/b")]
)
def test_names_follow_the_rules_of_objects(namespace: str, name: str) -> None:
    with pytest.raises(InvalidSpec):
        check_identity(namespace, name)


_names = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
_specs = st.one_of(
    st.fixed_dictionaries(
        {"provider": _names},
        optional={
            "placement": st.fixed_dictionaries({}, optional={"zone": _names, "machineType": _names, "image": _names}),
            "cloudInit": st.one_of(
                st.fixed_dictionaries({"inline": st.text(st.characters(exclude_characters="\0"), max_size=50)}),
                st.fixed_dictionaries({"secretRef": st.fixed_dictionaries({"name": _names})}),
            ),
        },
    ),
    st.fixed_dictionaries(
        {
            "mode": st.just("External"),
            "endpoint": st.fixed_dictionaries(
                {"host": _names}, optional={"credentialsSecretRef": st.fixed_dictionaries({"name": _names})}
            ),
        }
    ),
).flatmap(
    lambda declared: st.fixed_dictionaries(
        {},
        optional={
            "port": st.integers(1, 65_535),
            "attributes": st.dictionaries(
                _names, st.text(st.characters(categories=["L", "N"]), max_size=20), max_size=5
            ),
            "maxLeases": st.integers(1, 100),
            "drainSeconds": st.integers(0, 100),
            "healthCheck": st.fixed_dictionaries(
                {},
                optional={
                    "intervalSeconds": st.integers(10, 100),
                    "timeoutSeconds": st.integers(1, 10),
                    "failureThreshold": st.integers(1, 9),
                    "expectedStatus": st.lists(st.integers(100, 599), max_size=3),
                    "url": st.just("https://example.com/ip"),
                },
            ),
        },
    ).map(lambda rest: declared | rest)
)


@given(_specs)
def test_columns_keep_every_spec(declared: dict[str, Any]) -> None:
    spec = ProxySpec.parse(declared)
    proxy = Proxy()
    proxy.spec = spec
    assert proxy.spec == spec
    assert ProxySpec.parse(spec.declared()) == spec
