"""The ``kvm`` and ``kvm2`` drivers.

Nothing of a host is reachable but its sshd: libvirt's unix socket is forwarded through it (``ssh``, ``tunnel``), and
every verb works in a session that ends at its deadline (``connections``). A guest is a domain that carries its owner
(``domain_xml``, ``metadata``), a qcow2 over a base image that the host's pool keeps (``images``, ``sources``,
``volumes``), and a NoCloud seed. ``driver`` puts them together; its two policies are all in which kvm and kvm2 differ.

Inside this package ``import libvirt`` is libvirt-python: imports are absolute. The modules that need it are
``connections``, ``guests``, ``volumes`` and what imports them; the others are plain and tested everywhere.
"""
