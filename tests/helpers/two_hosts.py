"""Two connected network namespaces that stand in for two hosts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ADDRESSES = ("10.231.77.1", "10.231.77.2")


class NoNamespaces(Exception):
    """This machine does not allow network namespaces."""


@dataclass(frozen=True)
class Host:
    """One end of the wire.

    Args:
        namespace: its name.
        interface: its end of the wire.
    """

    namespace: str
    interface: str

    def start(self, command: list[str], output: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start a command on the host, in its own process group."""
        own = os.environ | {"GLOO_SOCKET_IFNAME": self.interface, "OMP_NUM_THREADS": "1"} | environment
        with output.open("ab") as file:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *command],
                env=own, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip


def _ip(*words: str) -> None:
    try:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise NoNamespaces("there is no command ip") from None
    except subprocess.CalledProcessError as error:
        raise NoNamespaces(error.stderr.strip()) from None


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Yield both hosts, which reach only each other.

    Raises:
        NoNamespaces: they cannot be created; the message says why.
    """
    tag = uuid.uuid4().hex[:6]
    hosts = Host(f"gb-{tag}-0", f"gb{tag}0"), Host(f"gb-{tag}-1", f"gb{tag}1")
    try:
        for host in hosts:
            _ip("netns", "add", host.namespace)
        _ip("link", "add", hosts[0].interface, "type", "veth", "peer", "name", hosts[1].interface)
        for host, address in zip(hosts, ADDRESSES, strict=True):
            _ip("link", "set", host.interface, "netns", host.namespace)
            _ip("-n", host.namespace, "address", "add", f"{address}/24", "dev", host.interface)
            for name in (host.interface, "lo"):
                _ip("-n", host.namespace, "link", "set", name, "up")
        yield hosts
    finally:
        for host in hosts:
            subprocess.run(["ip", "netns", "delete", host.namespace], capture_output=True)
