"""Where and with what was measured."""

from __future__ import annotations

import compileall
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

import distlock
import distlock.backends
import distlock.cli

from .peers import program


def describe(folder: Path, environment: Mapping[str, str]) -> list[str]:
    load = os.getloadavg()[0]
    options = {"etcd": "--version", "etcdctl": "version", "flock": "--version"}
    tools = [f"{name} {_version(name, option, environment)}" for name, option in options.items()]
    return [
        f"{len(os.sched_getaffinity(0))} CPUs, Linux {platform.release()}, {_file_system(folder)} at {folder.parent}",
        f"distlock {distlock.__version__}, Python {platform.python_version()}, {', '.join(tools)}",
        f"load average at the start {load:.2f}" + (": TOO HIGH for figures that count" if load >= 0.7 else ""),
    ]


def _version(name: str, option: str, environment: Mapping[str, str]) -> str:
    """The last word of the first line: ``etcd Version: 3.4.23``."""
    return _output([program(name), option], environment).splitlines()[0].split()[-1]


def _file_system(folder: Path) -> str:
    """Engines that keep their promises wait for the disk."""
    return _output([program("findmnt"), "-n", "-o", "FSTYPE", "-T", str(folder)], os.environ).strip()


def _output(command: list[str], environment: Mapping[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30).stdout


def compile_distlock() -> None:
    """As pip does for a wheel; an editable install has no bytecode before its first run. Each package by itself, since
    compileall does not follow the links of that install. What distlock imports was compiled when pip installed it."""
    for package in (distlock, distlock.backends, distlock.cli):
        for place in package.__path__:
            compileall.compile_dir(place, quiet=1)
