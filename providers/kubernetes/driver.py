"""The ``kubernetes`` driver; the package says what it promises and how."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar
from uuid import UUID, uuid4

from providers.base import BehaviourProfile
from providers.blocks import KubernetesBlock
from providers.checks import CheckReason, reason_of
from providers.errors import Conflict, InstanceNotFound, InvalidRequest, PermissionDenied, ProviderError, Unavailable
from providers.instances import Identity, Instance, InstanceList, InstanceRequest, TargetCheck
from providers.kubernetes.api import Object, PodApi
from providers.kubernetes.pod import (
    GRACE_SECONDS,
    identity_of,
    instance_of,
    is_image_name,
    is_marked,
    manifest,
    owner_labels,
)
from providers.kubernetes.squid import squid_conf
from providers.profiles import PROFILES
from providers.registry import entry_of


class KubernetesProvider:
    """One entry of type ``kubernetes``."""

    profile: ClassVar[BehaviourProfile] = PROFILES["kubernetes"]

    def __init__(self, *, entry: str, block: KubernetesBlock, fleet_id: str, state_dir: Path) -> None:  # noqa: ARG002 - of all drivers; pods need no files
        self._entry = entry
        self._block = block
        self._fleet_id = fleet_id
        self._api = PodApi(block.kubeconfig_file)
        self._our_name = re.compile(rf"{re.escape(fleet_id)}-[0-9a-f]{{32}}-[0-9a-f]{{8}}")

    def create(self, request: InstanceRequest) -> Instance:
        until = self._deadline(self.profile.create_deadline_seconds)
        _require_possible(request)
        pod = self._manifest(request, self._api)
        try:
            return self._instance(self._api.create(pod, until=until))
        except Conflict:
            return self._adopt(request, pod["metadata"]["namespace"], until)

    def get(self, provider_id: str) -> Instance:
        return self._instance(self._find(provider_id, self._deadline()))

    def delete(self, provider_id: str) -> None:
        until = self._deadline()
        try:
            metadata = self._find(provider_id, until)["metadata"]
            if not metadata.get("deletionTimestamp"):
                self._api.delete(
                    metadata["namespace"],
                    metadata["name"],
                    uid=metadata["uid"],
                    grace_seconds=GRACE_SECONDS,
                    until=until,
                )
        except InstanceNotFound:
            return

    def list(self) -> InstanceList:
        namespace = self._namespace(self._api)
        labels = owner_labels(self._fleet_id, self._entry)
        instances, unreadable = [], []
        for pod in self._api.list(namespace, labels=labels, until=self._deadline()):
            identity = identity_of(pod)
            if identity is None:
                unreadable.append(pod["metadata"]["name"])
            else:
                instances.append(instance_of(pod, identity, entry=self._entry))
        return InstanceList(tuple(instances), unreachable=tuple(unreadable))

    def check(self) -> Iterable[TargetCheck]:
        name = self._block.namespace or "cluster"
        try:
            self._try_out(PodApi(self._block.kubeconfig_file))
        except ProviderError as error:
            yield TargetCheck(name=name, ready=False, reason=reason_of(error), message=str(error))
        else:
            yield TargetCheck(name=name, ready=True, reason=CheckReason.HEALTHY)

    def _try_out(self, api: PodApi) -> None:
        """All that the driver does, by connections of its own, short of making a pod."""
        until = self._deadline()
        namespace = self._namespace(api)
        api.list(namespace, labels=owner_labels(self._fleet_id, self._entry), limit=1, until=until)
        identity = Identity(self._fleet_id, uuid4(), "default", "check", "0" * 16)
        api.create(self._manifest(InstanceRequest(identity, port=3128), api), until=until, dry_run=True)
        for verb in ("get", "delete"):
            if not api.may(verb, namespace, until=until):
                raise PermissionDenied(f"our account may not {verb} pods in the namespace {namespace}")

    def _manifest(self, request: InstanceRequest, api: PodApi) -> Object:
        return manifest(
            request,
            entry=self._entry,
            namespace=self._namespace(api),
            image=request.placement.image or self._block.image,
            squid_conf=squid_conf(
                port=request.port,
                clients=self._block.clients,
                allowed_private_targets=self._block.allow_private_targets,
            ),
        )

    def _namespace(self, api: PodApi) -> str:
        return self._block.namespace or api.default_namespace()

    def _adopt(self, request: InstanceRequest, namespace: str, until: float) -> Instance:
        """The pod that an earlier create made for this request."""
        try:
            pod = self._api.get(namespace, request.name, until=until)
        except InstanceNotFound:
            raise Unavailable(f"{request.name} went away while it was being made") from None
        if identity_of(pod) != request.identity or not self._is_ours(pod):
            raise Conflict(f"the name {request.name} is held by another owner")
        if pod["metadata"].get("deletionTimestamp"):
            raise Unavailable(
                f"the previous {request.name} is still being deleted", retry_after=self.profile.poll_seconds
            )
        return self._instance(pod)

    def _find(self, provider_id: str, until: float) -> Object:
        """The pod of exactly this providerID. Raises InstanceNotFound."""
        if entry_of(provider_id) != self._entry:
            raise InvalidRequest(f"{provider_id} was not made by provider {self._entry!r}")
        namespace, name, uid = self._parse(provider_id)
        pod = self._api.get(namespace, name, until=until)
        if pod["metadata"]["uid"] != uid or not self._is_ours(pod):
            raise InstanceNotFound(f"{provider_id} is gone: its name is another's")
        return pod

    def _parse(self, provider_id: str) -> tuple[str, str, str]:
        match provider_id.removeprefix(f"{self._entry}://").split("/"):
            case namespace, name, uid if (
                self._our_name.fullmatch(name) and _is_uuid(uid) and _LABEL.fullmatch(namespace)
            ):
                return namespace, name, uid
        raise InstanceNotFound(f"{provider_id} is nothing that provider {self._entry!r} made")

    def _is_ours(self, pod: Object) -> bool:
        return is_marked(pod, fleet_id=self._fleet_id, entry=self._entry)

    def _instance(self, pod: Object) -> Instance:
        identity = identity_of(pod)
        if identity is None:
            raise Unavailable(f"the pod {pod['metadata']['name']} lost the labels and annotations that say whose it is")
        return instance_of(pod, identity, entry=self._entry)

    def _deadline(self, seconds: float = profile.call_deadline_seconds) -> float:
        return time.monotonic() + seconds


_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def _is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


def _require_possible(request: InstanceRequest) -> None:
    """Raises InvalidRequest for what no pod can do."""
    if request.user_data is not None:
        raise InvalidRequest(
            "cloudInit: a pod has no cloud-init; leave it out, or take an image that brings what it needs"
        )
    if request.placement.machine_type:
        raise InvalidRequest("placement.machineType: pods of this provider have one size; leave it out")
    if request.placement.image and not is_image_name(request.placement.image):
        raise InvalidRequest(f"placement.image: {request.placement.image!r} is not the name of an image")
