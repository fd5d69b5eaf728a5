# SPDX-License-Identifier: MIT
"""The exceptions of gpumap. Each text names the cause, the figure and the remedy."""


class Error(Exception):
    """What every exception of gpumap is; `status` is the number in gpumap/gpumap.h."""

    status: int = 0


class Timeout(Error, TimeoutError):
    """The time limit is over."""

    status = 1


class Stopped(Error):
    """`Ring.stop()` was called."""

    status = 2


class Full(Error):
    """No slot, or block of a pool, is free, and the caller does not wait."""

    status = 3


class End(Error, EOFError):
    """The stream has ended. Over a socket another stream may follow: read again."""

    status = 4


class InvalidArgument(Error, ValueError):
    """A bad argument, or an object that was closed or whose `with` has ended."""

    status = -1


class NoDriver(Error):
    """No Vulkan driver, or no CUDA where it is needed."""

    status = -2


class NoDevice(Error):
    """The selector names no GPU of this machine."""

    status = -3


class OutOfMemory(Error, MemoryError):
    """No memory: of the BAR window, of the device, page-locked or ordinary."""

    status = -4


class NotSupported(Error):
    """The device, the driver or the memory cannot do this."""

    status = -5


class CompileError(Error):
    """A kernel does not compile or load; the text has the compiler's log."""

    status = -6


class DeviceLost(Error):
    """A kernel faulted: the GPU's context of this process is of no use any more."""

    status = -7


class IOFailed(Error, OSError):
    """The operating system refused."""

    status = -8


class Closed(Error, ConnectionError):
    """The other side of the ring is gone, and no frame is left to read; or the ring was closed while a call waited."""

    status = -9


class Forked(Error):
    """The object belongs to the parent process: use multiprocessing's start method "spawn"."""

    status = -10


class Revoked(Error):
    """The producer, in another process, took the slot back: what was read may be of a later frame."""

    status = -11


class Unexpected(Error):
    """A fault of gpumap's: please report it with the text."""

    status = -12


class NoResources(Error, OSError):
    """No descriptor, thread, mapping or memory of the CPU is left for this process."""

    status = -13


class Busy(Error, ConnectionError):
    """The producer has no place left for another client, or does not answer."""

    status = -14


def _leaves(kind: type[Error]) -> list[type[Error]]:
    return [leaf for one in kind.__subclasses__() for leaf in (one, *_leaves(one))]


_BY_STATUS = {kind.status: kind for kind in _leaves(Error)}
