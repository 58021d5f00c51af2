"""What a guest is told and what it has become, asked through its agent as an operator would."""

from __future__ import annotations

import base64
import gzip
import json
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from typing import Any

from tests.kvm.host import GATEWAY, Host

SQUID = f"""\
    http_port 3128
    acl CONNECT method CONNECT
    acl targets dst {GATEWAY}
    http_access allow CONNECT targets
    http_access deny all
    cache deny all
    cache_mem 8 MB
    memory_pools off
    access_log none
    pinger_enable off
    shutdown_lifetime 1 seconds
    dns_nameservers {GATEWAY}
"""

CLOUD_CONFIG = f"""\
#cloud-config
# A comment, and a number that YAML would shorten, if anyone loaded and dumped this on its way.
version: 1.10
write_files:
- path: /etc/squid/squid.conf
  content: |
{SQUID}"""

JINJA = f"""\
## template: jinja
{CLOUD_CONFIG}- path: /run/instance-id
  content: "{{{{ v1.instance_id }}}}"
"""

SCRIPT = """\
#!/bin/sh
echo "from the script: 1.10 \\t $#" > /run/from-script
"""


def mime() -> bytes:
    message = MIMEMultipart(boundary="a-boundary-of-the-owner")
    message.attach(MIMEText(CLOUD_CONFIG, "cloud-config"))
    message.attach(MIMEText(SCRIPT, "x-shellscript"))
    return message.as_bytes()


FORMATS = {
    "cloud-config": CLOUD_CONFIG.encode(),
    "jinja": JINJA.encode(),
    "mime": mime(),
    "gzip": gzip.compress(CLOUD_CONFIG.encode(), mtime=0),
    "script": SCRIPT.encode(),
}


class Guest:
    """A running guest with an agent."""

    def __init__(self, host: Host, provider_id: str) -> None:
        self._host = host
        self._uuid = provider_id.rpartition("/")[2]

    def read(self, path: str) -> bytes:
        handle = self._ask("guest-file-open", path=path)
        content = b""
        while True:
            part = self._ask("guest-file-read", handle=handle, count=1 << 16)
            content += base64.b64decode(part["buf-b64"])
            if part["eof"]:
                self._ask("guest-file-close", handle=handle)
                return content

    def stop_agent(self) -> None:
        self._ask("guest-exec", path="/bin/systemctl", arg=["stop", "--no-block", "qemu-guest-agent"])

    def agent_is_connected(self) -> bool:
        return "state='connected'" in self._host.virsh("dumpxml", self._uuid)

    def _ask(self, command: str, **arguments: Any) -> Any:
        question = json.dumps({"execute": command, "arguments": arguments})
        return json.loads(self._host.virsh("qemu-agent-command", self._uuid, question))["return"]
