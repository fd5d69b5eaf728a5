# SPDX-License-Identifier: MIT
"""Memory that the CPU writes and the GPU reads, rings of it, rings between processes, and kernels.

    import gpumap, torch

    ring = gpumap.Ring(slots=8, shape=(1080, 1920), dtype="uint8")
    with ring.write() as slot:
        slot.host[:] = frame  # or slot.write(frame): with several threads
    with ring.read(stream=torch.cuda.current_stream()) as f:
        t = torch.from_dlpack(f)  # no copy: the slot itself

Importing opens no driver. Without a GPU all of it runs on Vulkan for the CPU (lavapipe), and DLPack says CPU.

Ownership: bytes stay as they are until the object, its tensors and views are gone and the GPU is done. What is closed,
or behind the end of its `with`, raises. Threads: each object may be used from several. Errors: `gpumap.errors`, with
the cause, the figure and the remedy. Times: timeouts are in seconds, those of frames in nanoseconds.
"""
from __future__ import annotations

import os
from typing import Any

from . import errors
from ._core import (
    Array,
    Buffer,
    Device,
    Pool,
    Ring,
    Server,
    Slot,
    __version__,
    connect,
    devices,
    empty,
    from_gst,
    serve,
    to_gst,
)
from ._core import Kernel as _Kernel
from .errors import Error

__all__ = [
    "Array",
    "Buffer",
    "Device",
    "Error",
    "Kernel",
    "Pool",
    "Ring",
    "Server",
    "Slot",
    "__version__",
    "connect",
    "devices",
    "empty",
    "errors",
    "from_gst",
    "serve",
    "to_gst",
]


class Kernel(_Kernel):
    """A kernel of a file, or a built-in: `k = Kernel("blur.cu", gain=2.0)`, then `out = k(frame)`.

    `file` is a .cu, .ptx, .cubin, .comp or .spv as lib/kernel/README.md says; a name without ending is .cu on CUDA and
    .comp on Vulkan. `builtin` is "convert", "identity", "checksum" and so on instead. Keywords that are not listed here
    are the kernel's parameters: numbers, or lists of them; `params` has those of other names.

    A call launches on a Buffer, or on a slot that was read, and gives a Buffer: DLPack, numpy() and wait() come behind
    the kernel. It gives None where the kernel drops the frame. Keywords of a call:
    `caps` (how the input lies, as text), `out` (the caps of the output, for a kernel that gives others), `stream` (the
    CUDA stream that fills the input), `to_host` (the output lies in host memory, and the call waits), `gap` (state and
    history begin anew), `timeout` (seconds; None: a minute).

    Raises CompileError with the compiler's log, InvalidArgument, NotSupported, DeviceLost.
    """

    _OPTIONS = frozenset(
        {"function", "declare", "defines", "include_path", "backend", "device", "check_bounds", "reload"}
    )

    def __new__(
        cls,
        file: str | os.PathLike[str] | None = None,
        *,
        builtin: str | None = None,
        params: dict[str, Any] | None = None,
        **keywords: Any,
    ) -> Kernel:
        options = {name: keywords.pop(name) for name in cls._OPTIONS & keywords.keys()}
        return super().__new__(cls, file, builtin=builtin, params={**keywords, **(params or {})}, **options)
