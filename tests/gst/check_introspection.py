# SPDX-License-Identifier: MIT
"""What Python sees of a frame in gpumap's memory by introspection alone: the memory, its GPU, its bytes."""
import ctypes
import os
import traceback

try:
    import gi
except ImportError:
    print("skipped: python3-gi is missing")
    raise SystemExit(77) from None

gi.require_version("Gst", "1.0")
gi.require_version("GstGpumap", "1.0")
from gi.repository import GLib, Gst, GstGpumap  # noqa: E402

Gst.init(None)
assert GstGpumap.CAPS_FEATURE_MEMORY_GPUMAP == "memory:GPUMap"
assert not GstGpumap.is_gpumap_memory(None)
assert not GstGpumap.is_gpumap_memory(Gst.Buffer.new_wrapped(b"other").peek_memory(0))

frame = os.urandom(12345)
pipeline = Gst.parse_launch(
    "appsrc name=in caps=application/x-bytes ! gpumapupload ! application/x-bytes(memory:GPUMap) ! "
    "fakesink name=out signal-handoffs=true async=false"
)
seen = []


def look(_sink, buffer, _pad):
    """In the streaming thread: a failure there must reach the test."""
    try:
        memory = buffer.peek_memory(0)
        assert GstGpumap.is_gpumap_memory(memory)
        assert GstGpumap.memory_wait(memory, 10 * Gst.SECOND)
        uuid = GstGpumap.memory_get_device_uuid(memory)
        assert len(uuid) == 36, uuid
        cuda = GstGpumap.memory_get_cuda_device(memory)
        address = GstGpumap.memory_get_cuda_address(memory)
        assert (cuda >= 0) == (address != 0) == bool(GstGpumap.memory_get_cuda_context(memory))
        in_place = GstGpumap.memory_get_cpu_address(memory)
        assert (in_place is None) == (cuda >= 0)
        if in_place is not None:
            assert ctypes.string_at(in_place, len(frame)) == frame
            assert GstGpumap.memory_get_cpu_address(memory.share(100, 200)) == in_place + 100
        if address == 0:
            try:
                GstGpumap.memory_wait_on_cuda_stream(memory, None)
                raise AssertionError("no error without CUDA")
            except GLib.Error as error:
                assert error.matches(Gst.ResourceError.quark(), Gst.ResourceError.FAILED), error
                assert "has no CUDA here" in error.message, error.message
        else:
            part = memory.share(100, 200)
            assert GstGpumap.memory_get_cuda_address(part) == address + 100
            cuda_driver = ctypes.CDLL("libcuda.so.1")
            previous = ctypes.c_void_p()
            cuda_driver.cuCtxPushCurrent_v2(ctypes.c_void_p(GstGpumap.memory_get_cuda_context(memory)))
            assert GstGpumap.memory_wait_on_cuda_stream(memory, None)
            copy = ctypes.create_string_buffer(len(frame))
            assert cuda_driver.cuMemcpyDtoH_v2(copy, ctypes.c_uint64(address), ctypes.c_size_t(len(frame))) == 0
            assert GstGpumap.memory_add_cuda_reader(memory, None)
            cuda_driver.cuCtxPopCurrent_v2(ctypes.byref(previous))
            assert copy.raw == frame
        # Exported where Vulkan can: the file is ours then.
        try:
            done, exported = GstGpumap.memory_export_vulkan(memory)
            assert done and exported.fd >= 0 and exported.buffer_size >= exported.offset + len(frame)
            os.close(exported.fd)
        except GLib.Error as error:
            assert error.message, error
        assert buffer.extract_dup(0, buffer.get_size()) == frame
        seen.append(None)
    except BaseException as failure:  # whatever it is, it must reach the test
        traceback.print_exc()
        seen.append(failure)


pipeline.get_by_name("out").connect("handoff", look)
pipeline.set_state(Gst.State.PLAYING)
source = pipeline.get_by_name("in")
source.emit("push-buffer", Gst.Buffer.new_wrapped(frame))
source.emit("end-of-stream")
message = pipeline.get_bus().timed_pop_filtered(20 * Gst.SECOND, Gst.MessageType.EOS | Gst.MessageType.ERROR)
assert message is not None and message.type == Gst.MessageType.EOS, message and message.parse_error()
pipeline.set_state(Gst.State.NULL)
assert seen == [None], seen
print("introspection: the frame's", len(frame), "bytes and its GPU are seen")
