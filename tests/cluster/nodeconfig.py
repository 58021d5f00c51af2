"""The configuration of containerd, its network and the kubelet."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.cluster import images
from tests.cluster.pki import Pki
from tests.cluster.place import Place


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Files below ``folder``, which is the node's alone."""

    folder: Path
    place: Place
    pki: Pki

    @property
    def containerd(self) -> Path:
        return self.folder / "containerd.toml"

    @property
    def kubelet(self) -> Path:
        return self.folder / "kubelet.yaml"

    def write(self) -> None:
        network = self.folder / "network"
        network.mkdir(parents=True)
        (network / "10-bridge.conflist").write_text(json.dumps(self._network))
        self.kubelet.write_text(yaml.safe_dump(self._kubelet))
        self.containerd.write_text(f"""\
version = 3
root = "{self.folder}/containerd"
state = "/run/containerd/state"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{images.PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE, as in many a container or VM, no pod could lower its score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{network}"
""")

    @property
    def _network(self) -> dict[str, object]:
        """Not a gateway and no masquerading: those would change the machine's sysctls and firewall.

        The machine reaches pods, and pods reach the machine.
        """
        place = self.place
        addresses = {
            "type": "host-local",
            "dataDir": str(self.folder / "addresses"),
            "ranges": [[{"subnet": place.subnet, "rangeStart": place.first_pod, "gateway": place.address}]],
            "routes": [{"dst": "0.0.0.0/0", "gw": place.address}],
        }
        bridge = {"type": "bridge", "bridge": place.bridge, "isGateway": False, "ipMasq": False, "ipam": addresses}
        return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}

    @property
    def _kubelet(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.place.address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.pki.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.place.cgroup,
            "failCgroupV1": False,
            "failSwapOn": False,
            "protectKernelDefaults": True,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "healthzPort": 0,
            "nodeStatusUpdateFrequency": "1s",
            "syncFrequency": "5s",
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {"memory.available": "100Mi"},
        }
