# SPDX-License-Identifier: MIT
"""What tests and benches on GPUs share: an appsink by ctypes, for few machines with a GPU have PyGObject for their
Python, and a process that serves a ring."""
import ctypes
import subprocess
import sys

PATIENCE = 60  # seconds


class Error(ctypes.Structure):
    _fields_ = [("domain", ctypes.c_uint32), ("code", ctypes.c_int), ("message", ctypes.c_char_p)]


capsule = ctypes.pythonapi.PyCapsule_New
capsule.restype = ctypes.py_object
capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def function(library, name, result, *arguments):
    """By a prototype of its own: others may have given the library's attribute another one."""
    return ctypes.CFUNCTYPE(result, *arguments)((name, library))


class AppSink:
    """A pipeline and its appsink `out`. OSError where a library is missing."""

    NULL, PLAYING = 1, 4

    def __init__(self, text):
        pointer = ctypes.c_void_p
        core, app = ctypes.CDLL("libgstreamer-1.0.so.0"), ctypes.CDLL("libgstapp-1.0.so.0")
        self.set_state = function(core, "gst_element_set_state", ctypes.c_int, pointer, ctypes.c_int)
        self.object_unref = function(core, "gst_object_unref", None, pointer)
        self.sample_unref = function(core, "gst_mini_object_unref", None, pointer)
        self.buffer_of = function(core, "gst_sample_get_buffer", pointer, pointer)
        self.caps_of = function(core, "gst_sample_get_caps", pointer, pointer)
        self.memory_of = function(core, "gst_buffer_peek_memory", pointer, pointer, ctypes.c_uint)
        self.try_pull = function(app, "gst_app_sink_try_pull_sample", pointer, pointer, ctypes.c_uint64)
        function(core, "gst_init", None, pointer, pointer)(None, None)
        error = ctypes.POINTER(Error)()
        parse = function(core, "gst_parse_launch", pointer, ctypes.c_char_p, pointer)
        self.pipeline = parse(text.encode(), ctypes.byref(error))
        if error:
            raise RuntimeError(error.contents.message.decode())
        self.out = function(core, "gst_bin_get_by_name", pointer, pointer, ctypes.c_char_p)(self.pipeline, b"out")
        self.sample = None

    def __enter__(self):
        self.set_state(self.pipeline, self.PLAYING)
        return self

    def __exit__(self, *_):
        self.release()
        self.set_state(self.pipeline, self.NULL)
        self.object_unref(self.out)
        self.object_unref(self.pipeline)

    def release(self):
        if self.sample is not None:
            self.sample_unref(self.sample)
            self.sample = None

    def pull(self):
        """The next buffer and its caps, as gpumap.from_gst() takes them; the last ones are given back."""
        self.release()
        self.sample = self.try_pull(self.out, PATIENCE * 1_000_000_000)
        if self.sample is None:
            raise RuntimeError(f"no frame came within {PATIENCE} s: GST_DEBUG=2 says why")
        return (
            capsule(self.buffer_of(self.sample), b"GstBuffer", None),
            capsule(self.caps_of(self.sample), b"GstCaps", None),
        )

    def slot_address(self):
        """Where the frame that was pulled last lies: for CUDA, or for the CPU where that is the device."""
        gpumap = ctypes.CDLL("libgstgpumap-1.0.so.0")
        memory = self.memory_of(self.buffer_of(self.sample), 0)
        cuda = function(gpumap, "gst_gpumap_memory_get_cuda_address", ctypes.c_uint64, ctypes.c_void_p)
        cpu = function(gpumap, "gst_gpumap_memory_get_cpu_address", ctypes.c_void_p, ctypes.c_void_p)
        return cuda(memory) or cpu(memory)


class Producer:
    """A process that serves a ring at `path`, and gives its first client one frame, all fives."""

    TEXT = """
import sys, gpumap
ring = gpumap.Ring(8, caps=sys.argv[2])
with gpumap.serve(ring, sys.argv[1]) as server:
    server.wait_for_client(60)
    with ring.write(60) as slot:
        slot.host[:] = 5
        view = slot.host
    for line in sys.stdin:
        view[:] = int(line)
        print(line, end="", flush=True)
"""

    def __init__(self, path, caps):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.TEXT, path, caps], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate(timeout=PATIENCE)

    def fill(self, value):
        """Writes into the slot that readers have: a tensor without a copy in between changes with it."""
        self.process.stdin.write(f"{value}\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != f"{value}\n":
            raise RuntimeError("the producer ended")
