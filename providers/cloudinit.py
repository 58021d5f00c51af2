"""What a provider adds to a guest's cloud-init: vendor-data. The owner's user-data is never touched."""

from __future__ import annotations

from email import message_from_string
from email.message import Message
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

# A script: cloud-init joins no lists, so packages or runcmd here would be lost to any user-data that has its own.
GUEST_AGENT_SCRIPT = """\
#!/bin/sh
# The machine's address is read through the QEMU guest agent.
set -eu
export DEBIAN_FRONTEND=noninteractive
package=qemu-guest-agent
if ! command -v qemu-ga >/dev/null; then
    if command -v apt-get >/dev/null; then
        apt-get -q -o DPkg::Lock::Timeout=300 update
        apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$package"
    elif command -v dnf >/dev/null; then
        dnf -q -y install "$package"
    elif command -v zypper >/dev/null; then
        zypper -n install "$package"
    elif command -v apk >/dev/null; then
        apk add "$package"
    else
        echo "no package manager that could install $package" >&2
        exit 1
    fi
fi
if command -v systemctl >/dev/null; then
    # Debian's unit can't be enabled: its device starts it.
    systemctl enable "$package" || true
    systemctl start "$package"
else
    rc-update add "$package"
    rc-service "$package" start
fi
"""

# Fixed, so that the same seed has the same bytes; a part in base64 holds no dash.
_BOUNDARY = "proxyfleet-vendor-data"


def vendor_data(operators: str, *, install_guest_agent: bool) -> bytes | None:
    """The operator's own vendor-data and the script that brings the guest agent: both run, in this order.

    None when there is neither. The operator's may be of any format that cloud-init tells by its first line, or MIME.
    """
    if not install_guest_agent:
        return operators.encode() or None
    if not operators:
        return GUEST_AGENT_SCRIPT.encode()
    both = MIMEMultipart(boundary=_BOUNDARY)
    both.attach(_part(operators))
    both.attach(_part(GUEST_AGENT_SCRIPT))
    return both.as_bytes()


def _part(content: str) -> Message:
    # cloud-init's own rule for what is MIME already; whatever else comes as text/plain it knows by the first line.
    if "mime-version:" in content[:4096].lower():
        return message_from_string(content)
    return MIMEText(content, "plain", "utf-8")
