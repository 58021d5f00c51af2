"""The Proxy CRD against the one validator, and both against the API server that judges for real."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from k8s_sync.client import connect
from k8s_sync.errors import Refused
from k8s_sync.kinds import PROXY
from proxyfleet.fleet import spec as rules
from proxyfleet.fleet.spec import HealthCheckSpec, InvalidSpec, ProxySpec
from tests.cluster.cluster import Cluster

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
MANAGED = {"provider": "here"}
EXTERNAL = {"mode": "External", "endpoint": {"host": "192.0.2.1"}}
BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "maxItems", "maxProperties", "enum")


def crd_spec() -> dict[str, Any]:
    crd = yaml.safe_load((DEPLOY / "crd" / "proxies.yaml").read_text())
    found: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def fields(schema: dict[str, Any], defs: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field below ``schema`` by its path, with its own schema."""
    for name, declared in schema.get("properties", {}).items():
        field = plain(declared, defs)
        yield f"{path}{name}", field
        yield from fields(field, defs, f"{path}{name}.")
        if "items" in field:
            yield f"{path}{name}[]", plain(field["items"], defs)


def plain(schema: dict[str, Any], defs: dict[str, Any]) -> dict[str, Any]:
    """Without references and without the alternative of null, which the API server takes for absent."""
    for variant in schema.get("anyOf", ()):
        if variant != {"type": "null"}:
            schema = {**schema, **variant}
    if "$ref" in schema:
        schema = {**defs[schema["$ref"].rpartition("/")[2]], **schema}
    return schema


def test_the_schema_has_the_fields_types_bounds_and_defaults_of_the_model() -> None:
    document = ProxySpec.model_json_schema()
    model = dict(fields(document, document["$defs"]))
    crd = dict(fields(crd_spec(), {}))
    assert crd.keys() == model.keys()
    for path, field in model.items():
        assert (path, crd[path]["type"]) == (path, field["type"])
        for bound in BOUNDS:
            # In characters here, in bytes there: a rule of the field says so.
            if (path, bound) != ("cloudInit.inline", "maxLength") and not path.endswith("endpoint.host"):
                assert (path, bound, crd[path].get(bound)) == (path, bound, field.get(bound))
        if field["type"] != "object":
            assert (path, crd[path].get("default")) == (path, field.get("default") or crd[path].get("default"))
            assert "default" in crd[path] or field.get("default") in ("", None), path
    assert crd["healthCheck"]["default"] == HealthCheckSpec().model_dump(mode="json", by_alias=True, exclude_none=True)
    assert crd["cloudInit.inline"]["maxLength"] == rules.MAX_CLOUD_INIT_BYTES


def test_the_schema_has_the_patterns_of_the_model() -> None:
    crd = dict(fields(crd_spec(), {}))
    name = f"^{rules._NAME.pattern}$"
    assert crd["cloudInit.secretRef.name"]["pattern"] == name
    assert crd["endpoint.credentialsSecretRef.name"]["pattern"] == name
    value = crd["attributes"]["additionalProperties"]
    assert rules._ATTRIBUTE_VALUE.pattern == value["pattern"].strip("^$*").replace(
        "]", rf"\ud800-\udfff]{{0,{value['maxLength']}}}"
    )
    host = rules._HOST.pattern.removeprefix("(?=.{1,253}$)")
    assert f"^{host}$" in expressions(crd["endpoint.host"])
    assert f"^(?i){rules._NUMERIC_HOST.pattern}$" in expressions(crd["endpoint.host"])
    key = re.sub(r"\(\?=.*?/\)", "", rules._ATTRIBUTE_KEY.pattern).replace("(?:", "(")
    assert f"^{key}$" in expressions(crd["attributes"])


def expressions(field: dict[str, Any]) -> str:
    """The field's CEL rules, with the regular expressions in them as they are."""
    return "\n".join(rule["rule"] for rule in field["x-kubernetes-validations"]).replace("\\\\", "\\")


def test_every_field_is_explained() -> None:
    for path, field in fields(crd_spec(), {}):
        assert field.get("description") or path.endswith("[]"), path


Judge = Callable[[dict[str, Any]], str]
"""What the API server says of a spec; empty: it takes it."""


@pytest.fixture(scope="module")
def judge(installed: Cluster) -> Iterator[Judge]:
    with installed.session() as api:

        def refusal(spec: dict[str, Any]) -> str:
            proxy = {"apiVersion": PROXY.api_version, "kind": PROXY.name, "metadata": {"name": "judged"}, "spec": spec}
            url = f"{installed.url}{PROXY.path(namespace='default')}?dryRun=All&fieldValidation=Strict"
            answer = api.post(url, json=proxy)
            return "" if answer.ok else str(answer.json()["message"])

        yield refusal


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "spec.provider: Required value: a Managed proxy needs one"),
        ({"mode": "External"}, "spec.endpoint: Required value: an External proxy needs one"),
        (MANAGED | {"endpoint": {"host": "a"}}, "spec.endpoint: Forbidden: only an External"),
        (EXTERNAL | MANAGED, "spec.provider: Forbidden: only a Managed"),
        (EXTERNAL | {"placement": {"zone": "z"}}, "spec.placement: Forbidden: only a Managed"),
        (EXTERNAL | {"cloudInit": {"inline": ""}}, "spec.cloudInit: Forbidden: only a Managed"),
        ({"mode": "Borrowed"}, 'spec.mode: Unsupported value: "Borrowed"'),
        (MANAGED | {"prot": 1}, 'unknown field "spec.prot"'),
        (MANAGED | {"port": "3128"}, 'spec.port: Invalid value: "string"'),
        (MANAGED | {"port": 0}, "spec.port in body should be greater than or equal to 1"),
        (MANAGED | {"port": 65_536}, "should be less than or equal to 65535"),
        (MANAGED | {"maxLeases": 0}, "spec.maxLeases in body should be greater than or equal to 1"),
        (MANAGED | {"drainSeconds": -1}, "spec.drainSeconds in body should be greater"),
        (MANAGED | {"attributes": {"-geo": "eu"}}, "spec.attributes: Invalid value: a key is not a label key"),
        (MANAGED | {"attributes": {"geo": "e" * 64}}, "spec.attributes.geo: Too long: may not be more than 63"),
        (
            MANAGED | {"attributes": {f"k{n}": "" for n in range(33)}},
            "spec.attributes: Too many: 33: must have at most 32",
        ),
        (MANAGED | {"cloudInit": {"inline": "a", "secretRef": {"name": "b"}}}, "give inline or secretRef, not both"),
        (MANAGED | {"cloudInit": {"inline": "é" * 131_073}}, "is larger than 262144 bytes"),
        (
            MANAGED | {"cloudInit": {"secretRef": {"name": "Squid"}}},
            "spec.cloudInit.secretRef.name in body should match",
        ),
        (MANAGED | {"cloudInit": {"secretRef": {"key": "a"}}}, "spec.cloudInit.secretRef.name: Required value"),
        (EXTERNAL | {"endpoint": {"host": "127.1"}}, "must be an IPv4 address, an IPv6 address or a DNS name"),
        (EXTERNAL | {"endpoint": {"host": "169.254.169.254"}}, "is a link-local or cloud-metadata address"),
        (EXTERNAL | {"endpoint": {"host": "::"}}, "is not an address that one can connect to"),
        (
            MANAGED | {"healthCheck": {"timeoutSeconds": 31}},
            "spec.healthCheck.timeoutSeconds: Invalid value: must not be greater than intervalSeconds",
        ),
        (MANAGED | {"healthCheck": {"url": "ftp://x"}}, "must be an http or https URL"),
        (MANAGED | {"healthCheck": {"url": "https://me:pw@x/"}}, "must not carry a user name or password"),
        (
            MANAGED | {"healthCheck": {"expectedStatus": [99]}},
            "spec.healthCheck.expectedStatus[0] in body should be greater",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_wrong_spec_is_refused_with_these_words(judge: Judge, spec: dict[str, Any], words: str) -> None:
    assert words in judge(spec)
    with pytest.raises(InvalidSpec):
        ProxySpec.parse(spec)


def test_the_mode_stays_as_it_is(installed: Cluster, namespace: str) -> None:
    api = connect(installed.kubeconfig)
    manifest = {"metadata": {"name": "a", "namespace": namespace}, "spec": MANAGED}
    api.apply(PROXY, manifest, field_manager="test")
    with pytest.raises(Refused, match="is immutable: the proxy is Managed; delete it and declare another"):
        api.apply(PROXY, manifest | {"spec": EXTERNAL}, field_manager="test")


@pytest.mark.parametrize("sample", sorted((DEPLOY / "samples").glob("prox[iy]*.yaml")), ids=lambda path: path.stem)
def test_the_samples_are_taken(installed: Cluster, sample: Path) -> None:
    """By the API server and by the model."""
    installed.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", str(sample))
    proxies = [each for each in yaml.safe_load_all(sample.read_text()) if each["kind"] == "Proxy"]
    assert proxies
    for proxy in proxies:
        ProxySpec.parse(proxy["spec"])


@pytest.mark.parametrize(
    ("spec", "server_takes_it", "model_takes_it"),
    [
        pytest.param(EXTERNAL | {"endpoint": {"host": "::ffff:192.0.2.1"}}, False, True, id="IPv4-mapped address"),
        pytest.param(EXTERNAL | {"endpoint": {"host": "64:ff9b::a9fe:a9fe"}}, True, False, id="metadata by NAT64"),
        pytest.param(EXTERNAL | {"endpoint": {"host": "64:ff9b::"}}, True, False, id="no address at all by NAT64"),
        pytest.param(MANAGED | {"healthCheck": {"url": "http:example.com"}}, False, True, id="URL without slashes"),
        pytest.param(MANAGED | {"healthCheck": {"url": "http://x/%zz"}}, False, True, id="URL with a bad escape"),
        pytest.param(
            MANAGED | {"healthCheck": {"url": "http://x/\u200b"}}, True, False, id="URL with an invisible character"
        ),
        pytest.param(MANAGED | {"healthCheck": {"url": "http://169.254.169.254/"}}, True, False, id="metadata URL"),
        pytest.param(MANAGED | {"healthCheck": {"url": "http://0xa9fea9fe/"}}, True, False, id="metadata URL in hex"),
        pytest.param(MANAGED | {"placement": {"zone": None}}, True, False, id="null, which the server drops"),
        pytest.param(MANAGED | {"port": 3128.0}, True, False, id="whole number with a point, which it rounds"),
    ],
)
def test_where_server_and_model_differ(
    judge: Judge, spec: dict[str, Any], server_takes_it: bool, model_takes_it: bool
) -> None:
    """What the server takes and the model refuses, the bridge says on the object's status."""
    assert (judge(spec) == "", model_takes(spec)) == (server_takes_it, model_takes_it)


def model_takes(spec: dict[str, Any]) -> bool:
    try:
        ProxySpec.parse(spec)
    except InvalidSpec:
        return False
    return True


def optional(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=strategies)


def around(*bounds: int) -> st.SearchStrategy[int]:
    return st.sampled_from([near for bound in bounds for near in (bound - 1, bound, bound + 1)])


_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def _stands_for_another(host: str) -> bool:
    """As tried by `test_where_server_and_model_differ`."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return getattr(address, "ipv4_mapped", None) is not None or address in _NAT64


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=70)
NAMES = st.sampled_from(
    ["a", "a.b", "a-b.c", "A", "a.", "-a", "a..b", "a_b", "", "a" * 64, f"{'a.' * 126}a", f"{'a.' * 127}a"]
)
ADDRESSES = st.ip_addresses().map(str)
HOSTS = (
    NAMES
    | ADDRESSES
    | ADDRESSES.map(lambda text: f"[{text}]")
    | TEXT
    | st.sampled_from(
        [
            "example.com",
            "EXAMPLE.com",
            "_dmarc.x",
            "1.2.3",
            "0x7f.1",
            "127.0.0.01",
            "1.2.3.4.5",
            "fe80::1%eth0",
            "100.100.100.200",
            "fd00:ec2::254",
        ]
    )
).filter(lambda host: not _stands_for_another(host))
KEYS = (
    NAMES
    | TEXT
    | st.sampled_from(["geo", "a/b", "/b", "a/", "a/b/c", "A/b", "a_b", f"{'a' * 63}/b", f"{'a.' * 126}a/b"])
)
SECRET_REF = optional(name=NAMES)
SPECS = optional(
    mode=st.sampled_from(["Managed", "External", "managed"]),
    provider=st.sampled_from(["here", "", "p" * 63, "p" * 64]) | TEXT,
    placement=optional(zone=TEXT | st.just("z" * 254), machineType=TEXT, image=TEXT | st.just("i" * 2049)),
    cloudInit=optional(inline=TEXT, secretRef=optional(name=NAMES, key=TEXT)),
    endpoint=optional(host=HOSTS, credentialsSecretRef=SECRET_REF),
    port=around(1, 65_535),
    attributes=st.dictionaries(KEYS, TEXT, max_size=3),
    maxLeases=around(1, 1_000_000),
    drainSeconds=around(0, 604_800),
    healthCheck=optional(
        url=st.sampled_from(
            ["", "http://x/", "HTTPS://x:8080/a?b#c", "http://a b/", "x", "http://", "http://me@x/", "http://x/@"]
        ),
        intervalSeconds=around(1, 120, 86_400),
        timeoutSeconds=around(1, 30, 120),
        failureThreshold=around(1, 1_000),
        successThreshold=around(1, 1_000),
        expectedStatus=st.lists(around(100, 599), max_size=3) | st.just([200] * 65),
    ),
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(spec=SPECS)
@example(spec=MANAGED)
@example(spec=EXTERNAL)
def test_server_and_model_agree(judge: Judge, spec: dict[str, Any]) -> None:
    """Each field by itself first, in a spec that is right but for it: of a spec with many faults nobody learns much."""
    for name, value in spec.items():
        base = EXTERNAL if name == "endpoint" else MANAGED
        agree(judge, {**base, name: value})
    agree(judge, spec)


def agree(judge: Judge, spec: dict[str, Any]) -> None:
    refusal = judge(spec)
    assert model_takes(spec) == (refusal == ""), (spec, refusal)
