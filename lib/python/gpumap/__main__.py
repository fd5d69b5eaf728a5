# SPDX-License-Identifier: MIT
"""python -m gpumap info | plugin-path | top"""
from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import gpumap

PLUGIN = "libgstgpumap.so"


def info() -> int:
    """What this machine has, and what a user of it gets."""
    print(f"gpumap {gpumap.__version__}, Python {sys.version.split()[0]}")
    devices = gpumap.devices()
    for device in devices:
        cuda = f"cuda:{device['cuda_ordinal']}" if device["cuda_ordinal"] >= 0 else "no CUDA"
        print(f"{device['index']}: {device['name']} ({cuda}, kernels: {device['backend']})")
        print(f"   {device['uuid']} {device['pci_address']}".rstrip())
        window = device["window_bytes"] >> 20
        print(f"   {device['memory_bytes'] >> 20} MiB, of which the CPU can map {window}: {device['reason']}")
    if not devices:
        gpumap.Device()  # raises, and says what is missing
    return 0


def plugin_folders() -> list[Path]:
    """Where GStreamer's plugins lie, first the places that a user has named."""
    named = [Path(folder) for folder in os.environ.get("GST_PLUGIN_PATH", "").split(":") if folder]
    pkg_config = shutil.which("pkg-config")
    if pkg_config:
        command = [pkg_config, "--variable=pluginsdir", "gstreamer-1.0"]
        folder = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        named += [Path(folder)] if folder else []
    machine = sysconfig.get_config_var("MULTIARCH") or ""
    return named + [Path("/usr/lib") / machine / "gstreamer-1.0", Path("/usr/local/lib") / machine / "gstreamer-1.0"]


def plugin_path() -> int:
    """The folder of gpumap's GStreamer plugin, for GST_PLUGIN_PATH."""
    for folder in plugin_folders():
        if (folder / PLUGIN).is_file():
            print(folder)
            return 0
    searched = ", ".join(str(folder) for folder in plugin_folders())
    print(f"no {PLUGIN} in {searched}: install gstreamer1.0-gpumap, or set GST_PLUGIN_PATH", file=sys.stderr)
    return 1


def top(arguments: list[str]) -> int:
    """The rings that are served on this machine, and who takes frames from them: gpumap-top."""
    beside = Path(sysconfig.get_path("scripts")) / "gpumap-top"
    program = str(beside) if beside.is_file() else shutil.which("gpumap-top")
    if program is None:
        print(f"no gpumap-top, neither {beside} nor on PATH: install gpumap-tools", file=sys.stderr)
        return 1
    os.execv(program, [program, *arguments])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gpumap", description="gpumap's frames in GPU memory")
    commands = parser.add_subparsers(dest="command", required=True)
    for function in (info, plugin_path, top):
        commands.add_parser(function.__name__.replace("_", "-"), help=function.__doc__, add_help=function is not top)
    chosen, others = parser.parse_known_args()
    if chosen.command == "top":
        return top(others)
    if others:
        parser.error(f"unknown argument {others[0]}")
    try:
        return info() if chosen.command == "info" else plugin_path()
    except gpumap.Error as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
