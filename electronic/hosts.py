"""The servers that carry accelerators: processors, memory, disks and the links to them, from a table."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import MappingProxyType

from electronic.devices import table
from simulator.errors import ParameterError
from simulator.node import Host, HostLink, Memory, Processors, Storage

HOSTS = MappingProxyType(
    {
        "v100": "dgx-2",
        **dict.fromkeys(("a100", "a100-40gb", "a100-pcie"), "dgx-a100"),
        **dict.fromkeys(("h100", "h200", "h800", "h20"), "dgx-h100"),
        **dict.fromkeys(("b200", "b300"), "dgx-b200"),
        **dict.fromkeys(("gb200", "gb300"), "grace-gb200"),
    }
)
"""Server that comes with each GPU in the vendor's reference system."""


@cache
def load_host(name: str) -> Host:
    """Return a server from the table, e.g. ``"dgx-h100"``.

    Raises
    ------
    ParameterError
        If there is no such server.
    """
    rows = table("hosts")
    return Host(
        name=name,
        processors=rows.build(Processors, name),
        ddr=rows.build(Memory, f"{name}.ddr"),
        link=rows.build(HostLink, f"{name}.link"),
        storage=rows.build(Storage, f"{name}.storage"),
    )


def host_of(gpu_name: str, accelerators: int) -> Host:
    """Return the server that carries a GPU, shared by as many of them as it holds or as there are.

    Raises
    ------
    ParameterError
        If no server of that GPU is in the table.
    """
    if gpu_name not in HOSTS:
        msg = (
            f"no host is described for '{gpu_name}', so nothing can be moved to one; keep optimizer and "
            f"parameters on the device, or take one of {', '.join(HOSTS)}"
        )
        raise ParameterError(msg)
    host = load_host(HOSTS[gpu_name])
    shared = min(host.processors.accelerators, accelerators)
    return replace(host, processors=replace(host.processors, accelerators=shared))


def host_names() -> tuple[str, ...]:
    """Return the servers of the table that carry a GPU."""
    return tuple(dict.fromkeys(HOSTS.values()))
