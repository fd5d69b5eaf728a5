# SPDX-License-Identifier: MIT
"""Buffers of GStreamer's as arrays, and the other way around, beside gpumap's elements."""
import ctypes
import gc
import os
import signal
import tempfile
import threading
import time
import unittest
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import gi
except ImportError:
    print("skipped: python3-gi is missing")
    raise SystemExit(77) from None

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
gi.require_version("GstVideo", "1.0")
import numpy  # noqa: E402
from appsink import AppSink, Producer, capsule  # noqa: E402
from arrays_test import random_array, same  # noqa: E402
from withstand_test import script  # noqa: E402
from gi.repository import Gst, GstApp, GstVideo  # noqa: E402, F401

import gpumap  # noqa: E402
from gpumap import errors  # noqa: E402

Gst.init(None)
PATIENCE = 60


def nv12(width, height):
    return f"video/x-raw,format=NV12,width={width},height={height},framerate=30/1"


class Pipeline:
    """A pipeline whose last element is an appsink named `out`."""

    def __init__(self, text):
        self.pipeline = Gst.parse_launch(text)
        self.out = self.pipeline.get_by_name("out")

    def __enter__(self):
        self.pipeline.set_state(Gst.State.PLAYING)
        return self

    def __exit__(self, *_):
        self.pipeline.set_state(Gst.State.NULL)

    def pull(self):
        sample = self.out.try_pull_sample(PATIENCE * Gst.SECOND)
        if sample is None:
            message = self.pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR)
            raise AssertionError(message.parse_error() if message else "no sample")
        return sample


# Each frame has bytes of its own.
SLOW = """// gpumap: params none
#version 460
#include <gpumap.glsl>
void main() {
  uint n = 0u;
  for (uint i = 0u; i < 12000u; ++i) n = n * 1664525u + 1013904223u + load_u8(frame.in_view.plane[0]);
  const uint64_t at = gpumap_thread();
  if (at < frame.out_view.bytes) store_u8(frame.out_view.plane[0] + at, (n & 1u) | ((uint(frame.sequence) + 1u) << 1));
}
"""


def bytes_of(buffer):
    return buffer.extract_dup(0, buffer.get_size())


class FromGst(unittest.TestCase):
    def test_system_memory(self):
        frame = random_array((23, 40, 4))
        caps = Gst.Caps.from_string("video/x-raw,format=RGBA,width=40,height=23,framerate=1/1")
        buffer = Gst.Buffer.new_wrapped(frame.tobytes())
        for given in (caps, caps.to_string()):
            array = gpumap.from_gst(buffer, given)
            self.assertEqual((array.shape, array.dtype, array.readonly), ((23, 40, 4), "uint8", True))
            self.assertTrue(same(numpy.from_dlpack(array), frame))
            self.assertTrue(same(array.numpy(), frame))
        plain = gpumap.from_gst(buffer)
        self.assertEqual(plain.shape, (frame.nbytes,))
        self.assertEqual(plain.tobytes(), frame.tobytes())
        unknown = gpumap.from_gst(buffer, "application/x-bytes")
        self.assertEqual(unknown.shape, (frame.nbytes,))

    def test_rows_and_planes_are_where_the_meta_says(self):
        """A width whose rows end in padding, in memory of videotestsrc's own pool."""
        with Pipeline(
            f"videotestsrc pattern=snow num-buffers=3 ! {nv12(37, 22)} ! appsink name=out sync=false"
        ) as pipeline:
            for _ in range(3):
                sample = pipeline.pull()
                self.check_nv12(sample, 37, 22)

    def check_nv12(self, sample, width, height):
        buffer = sample.get_buffer()
        array = gpumap.from_gst(buffer, sample.get_caps())
        whole = numpy.frombuffer(bytes_of(buffer), "uint8")
        luma, chroma = array.planes
        self.assertEqual((luma.shape, chroma.shape), ((height, width), (height // 2, (width + 1) // 2, 2)))
        stride = luma.strides[0]
        self.assertGreater(stride, width)
        expected = whole[: stride * height].reshape(height, stride)[:, :width]
        self.assertTrue(same(luma.numpy(), expected.copy()))
        self.assertGreater(len(set(expected.tobytes())), 50)  # snow, and not one grey
        second = whole[len(whole) - chroma.strides[0] * (height // 2) :].reshape(height // 2, -1)
        self.assertTrue(same(chroma.numpy().reshape(height // 2, -1), second[:, : (width + 1) // 2 * 2].copy()))
        return array

    def test_slots_of_elements(self):
        with Pipeline(
            f"videotestsrc pattern=snow num-buffers=4 ! {nv12(37, 22)} ! gpumapupload ! "
            "video/x-raw(memory:GPUMap) ! appsink name=out sync=false"
        ) as pipeline:
            arrays = []
            for _ in range(4):
                sample = pipeline.pull()
                self.assertTrue(sample.get_caps().get_features(0).contains("memory:GPUMap"))
                arrays.append(self.check_nv12(sample, 37, 22))
            contents = {array.tobytes() for array in arrays}
            self.assertEqual(len(contents), 4)  # each is kept: none is written again
        # Also when the pipeline has ended.
        del pipeline, sample
        gc.collect()
        self.assertEqual({array.tobytes() for array in arrays}, contents)

    def test_a_pipeline_behind_a_socket(self):
        """gpumapsink serves, and gpumap.connect() reads its slots, with the caps."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "camera"
            with Pipeline(
                f"videotestsrc is-live=true pattern=snow ! {nv12(37, 22)} ! gpumapsink socket-path={path} leaky=oldest "
                "name=out"
            ), gpumap.connect(path, PATIENCE) as ring:
                frames = set()
                for _ in range(3):
                    with ring.read(PATIENCE) as frame:
                        self.assertIn("NV12", frame.caps)
                        self.assertIsNotNone(frame.pts)
                        self.assertEqual(frame.planes[0].shape, (22, 37))
                        frames.add(frame.planes[0].tobytes())
                self.assertEqual(len(frames), 3)

    def test_a_picture_that_begins_later_across_a_socket(self):
        """A frame ends where it ends, wherever its planes begin."""
        formats = GstVideo.VideoFormat
        rgba = nv12(16, 16).replace("NV12", "RGBA")
        frame = random_array(1000)
        luma, chroma = frame[64:320], frame[512:640]
        plain = gpumap.empty(384)
        plain.write(numpy.concatenate([luma, chroma]))
        kernel = gpumap.Kernel(builtin="convert")
        expected = kernel(plain, caps=nv12(16, 16), out=rgba).numpy()
        for name, number in (("NV12", formats.NV12), ("NV16", formats.NV16)):
            with tempfile.TemporaryDirectory() as folder, Pipeline(
                f"appsrc name=in format=time caps={nv12(16, 16).replace('NV12', name)} ! "
                f"gpumapsink socket-path={folder}/frames sync=false async=false name=out"
            ) as pipeline:

                def push(number=number, pipeline=pipeline):
                    buffer = Gst.Buffer.new_wrapped(frame.tobytes())
                    GstVideo.buffer_add_video_meta_full(buffer, 0, number, 16, 16, 2, [64, 512, 0, 0], [16, 16, 0, 0])
                    pipeline.pipeline.get_by_name("in").push_buffer(buffer)

                push()  # before it, there is no ring to connect to
                with gpumap.connect(Path(folder) / "frames", PATIENCE) as ring:
                    push()
                    with ring.read(PATIENCE) as got:
                        self.assertTrue(same(got.numpy(), frame[64:].copy()))
                        self.assertTrue(same(got.planes[0].numpy(), luma.reshape(16, 16).copy()))
                        if name == "NV12":
                            self.assertTrue(same(kernel(got, out=rgba).numpy(), expected))

    def test_a_ring_feeds_a_pipeline(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "frames"
            ring = gpumap.Ring(6, caps=nv12(64, 32))
            with gpumap.serve(ring, path) as server, Pipeline(
                f"gpumapsrc socket-path={path} ! gpumapdownload ! appsink name=out sync=false"
            ) as pipeline:
                server.wait_for_client(PATIENCE)
                for index in range(3):
                    luma = random_array((32, 64))
                    with ring.write(PATIENCE) as slot:
                        slot.planes[0].write(luma)
                        slot.pts = index * 1000
                    sample = pipeline.pull()
                    got = gpumap.from_gst(sample.get_buffer(), sample.get_caps())
                    self.assertTrue(same(got.planes[0].numpy(), luma))
                    self.assertEqual(sample.get_buffer().pts, index * 1000)

    def test_the_buffer_is_kept_as_long_as_it_is_used(self):
        frame = bytearray(random_array(1000).tobytes())
        held = numpy.frombuffer(frame, "uint8")
        gone = weakref.ref(held)
        buffer = gpumap.to_gst(held)
        del held
        array = gpumap.from_gst(buffer)
        tensor = numpy.from_dlpack(array)
        del buffer, array
        gc.collect()
        self.assertIsNotNone(gone())
        self.assertEqual(tensor.tobytes(), bytes(frame))
        del tensor
        gc.collect()
        self.assertIsNone(gone())

    def test_what_is_no_buffer(self):
        for wrong in (None, 7, b"bytes", Gst.Caps.new_empty(), Gst.Buffer):
            with self.assertRaises(TypeError):
                gpumap.from_gst(wrong)
        buffer = Gst.Buffer.new_wrapped(b"12345")
        for wrong in (7, buffer):
            with self.assertRaises(TypeError):
                gpumap.from_gst(buffer, wrong)
        with self.assertRaises(errors.InvalidArgument):
            gpumap.from_gst(Gst.Buffer.new())
        with self.assertRaises(ValueError):
            gpumap.from_gst(buffer).write(b"12345")

    def test_pictures_that_leave_their_buffer_are_bytes(self):
        gray = "video/x-raw,format=GRAY8,width=64,height=64,framerate=1/1"
        cases = [(caps, None) for caps in (nv12(64, 64), gray)]
        formats = GstVideo.VideoFormat
        for offsets, strides in (((0, 5_000_000), (16, 16)), ((0, 256), (-16, 16)), ((0, 256), (16, -16))):
            cases.append((nv12(16, 16), (formats.NV12, 2, [*offsets, 0, 0], [*strides, 0, 0])))
        for offset, stride in ((5_000_000, 16), (384, 16), (0, 30), (384, -16)):
            caps = "video/x-raw,format=GRAY8,width=16,height=16,framerate=1/1"
            cases.append((caps, (formats.GRAY8, 1, [offset, 0, 0, 0], [stride, 0, 0, 0])))
        for caps, meta in cases:
            buffer = Gst.Buffer.new_wrapped(bytes(400))
            if meta is not None:
                video_format, planes, offsets, strides = meta
                GstVideo.buffer_add_video_meta_full(buffer, 0, video_format, 16, 16, planes, offsets, strides)
            array = gpumap.from_gst(buffer, caps)
            self.assertEqual((array.shape, array.host.shape), ((400,), (400,)), (caps, meta))
            with self.assertRaises(errors.InvalidArgument):
                array.planes

    def test_rows_that_are_no_whole_elements_apart(self):
        frame = random_array(400)
        buffer = Gst.Buffer.new_wrapped(frame.tobytes())
        formats = GstVideo.VideoFormat
        GstVideo.buffer_add_video_meta_full(buffer, 0, formats.GRAY16_LE, 4, 8, 1, [1, 0, 0, 0], [11, 0, 0, 0])
        array = gpumap.from_gst(buffer, "video/x-raw,format=GRAY16_LE,width=4,height=8,framerate=1/1")
        rows = [frame[1 + 11 * row : 9 + 11 * row] for row in range(8)]
        self.assertEqual(array.tobytes(), numpy.stack(rows).tobytes())
        self.assertEqual(array.host.tobytes(), array.tobytes())
        with self.assertRaisesRegex(BufferError, "numpy"):
            numpy.from_dlpack(array)

    def test_planes_that_lie_one_before_the_other(self):
        frame = random_array(400)
        for offsets in ((20, 10, 0), (0, 40, 80), (7, 39, 71)):
            buffer = Gst.Buffer.new_wrapped(frame.tobytes())
            GstVideo.buffer_add_video_meta_full(
                buffer, 0, GstVideo.VideoFormat.GBR, 4, 8, 3, [*offsets, 0], [4, 4, 4, 0]
            )
            array = gpumap.from_gst(buffer, "application/x-tensor,type=uint8,width=4,height=8")
            planes = [frame[offset : offset + 32].reshape(8, 4) for offset in offsets]
            self.assertTrue(same(numpy.stack([plane.numpy() for plane in array.planes]), numpy.stack(planes)))
            rises = offsets[0] < offsets[1]
            expected = numpy.stack(planes) if rises else frame[offsets[0] :].copy()
            self.assertTrue(same(array.numpy(), expected), offsets)

    def test_capsules_are_known_by_their_name(self):
        buffer = Gst.Buffer.new_wrapped(b"12345")
        pointer = ctypes.c_void_p.from_address(id(buffer) + object.__basicsize__)  # PyGBoxed
        self.assertEqual(gpumap.from_gst(capsule(pointer, b"GstBuffer", None)).tobytes(), b"12345")
        for name in b"GstCaps", b"GstMemory", None:
            with self.assertRaises(TypeError):
                gpumap.from_gst(capsule(pointer, name, None))
            with self.assertRaises(TypeError):
                gpumap.from_gst(buffer, capsule(pointer, b"GstBuffer", None))

    def test_what_is_still_written_is_waited_for(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "slow.comp"
            source.write_text(SLOW)
            for name in "asarray", "host":
                with self.subTest(name), Pipeline(
                    "fakesrc num-buffers=5 sizetype=fixed sizemax=4096 ! application/octet-stream ! gpumapupload ! "
                    f"gpumapkernel location={source} ! application/octet-stream(memory:GPUMap) ! gpumapdownload ! "
                    "appsink name=out sync=false"
                ) as running:
                    for _ in range(5):
                        sample = running.pull()
                        array = gpumap.from_gst(sample.get_buffer(), sample.get_caps())
                        seen = (numpy.asarray(array) if name == "asarray" else array.host).tobytes()
                        self.assertEqual(seen, bytes_of(sample.get_buffer()))

    def test_a_frame_whose_kernel_runs_keeps_no_thread_and_no_ctrl_c(self):
        if not gpumap.Device().info["software"]:
            self.skipTest("on a GPU the kernel ends soon")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "slow.comp"
            source.write_text(SLOW)
            with Pipeline(
                "fakesrc num-buffers=1 sizetype=fixed sizemax=120000 ! application/octet-stream ! gpumapupload ! "
                f"gpumapkernel location={source} ! application/octet-stream(memory:GPUMap) ! "
                "appsink name=out sync=false"
            ) as running, ThreadPoolExecutor() as threads:
                buffer = running.pull().get_buffer()
                began = time.monotonic()
                end = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
                end.start()
                with self.assertRaises(KeyboardInterrupt):
                    gpumap.from_gst(buffer)
                    end.join()
                interrupted = last = time.monotonic()
                pause = 0
                done = threads.submit(gpumap.from_gst, buffer)
                while not done.done():
                    time.sleep(0.01)
                    pause, last = max(pause, time.monotonic() - last), time.monotonic()
                done.result()
                self.assertLess(interrupted - began, (last - began) / 2)
                self.assertLess(pause, (last - interrupted) / 2, "this thread stood still as well")

    def test_kernels_take_a_copy(self):
        with self.assertRaises(ValueError):
            gpumap.Kernel(builtin="identity")(gpumap.from_gst(Gst.Buffer.new_wrapped(b"12345")))


class Addresses(unittest.TestCase):
    """A tensor is the slot itself. Without PyGObject."""

    def test_of_an_appsink(self):
        frames = f"videotestsrc pattern=snow num-buffers=20 ! {nv12(64, 22)} ! "
        for elements in "gpumapupload", "gpumapsink sync=false  gpumapsrc":
            with self.subTest(elements), AppSink(
                f"{frames} {elements} ! video/x-raw(memory:GPUMap) ! appsink name=out sync=false"
            ) as sink:
                addresses = set()
                for _ in range(20):
                    array = gpumap.from_gst(*sink.pull())
                    tensor = numpy.from_dlpack(array)
                    self.assertEqual(tensor.ctypes.data, sink.slot_address())
                    self.assertEqual(array.planes[0].shape, (22, 64))
                    addresses.add(tensor.ctypes.data)
                    del array, tensor
                self.assertLess(len(addresses), 20)  # of a ring, and not a new one for each

    def test_of_an_appsink_across_a_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/ring"
            with Producer(path, nv12(64, 22)) as producer, AppSink(
                f"gpumapsrc socket-path={path} ! video/x-raw(memory:GPUMap) ! appsink name=out sync=false"
            ) as sink:
                tensor = numpy.from_dlpack(gpumap.from_gst(*sink.pull()))
                self.assertEqual(tensor.ctypes.data, sink.slot_address())
                self.check_that_it_is_the_producers(producer, tensor)

    def test_of_a_ring_across_a_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/ring"
            with Producer(path, nv12(64, 22)) as producer, gpumap.connect(path, PATIENCE) as ring:
                with ring.read(PATIENCE) as frame:
                    tensor = numpy.from_dlpack(frame)
                self.check_that_it_is_the_producers(producer, tensor)

    def test_that_are_held_at_the_interpreters_end(self):
        done = script(
            f"""
            import sys
            sys.path.append({str(Path(__file__).parent)!r})
            import numpy, gpumap
            from appsink import AppSink
            frames = "videotestsrc num-buffers=3 ! {nv12(64, 22)} ! gpumapupload"
            with AppSink(frames + " ! video/x-raw(memory:GPUMap) ! appsink name=out sync=false") as sink:
                arrays = [gpumap.from_gst(*sink.pull()) for _ in range(3)]
            tensors = [numpy.from_dlpack(array) for array in arrays]
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def check_that_it_is_the_producers(self, producer, tensor):
        self.assertTrue((tensor == 5).all())
        for value in 77, 3:
            producer.fill(value)
            self.assertTrue((tensor == value).all())


class ToGst(unittest.TestCase):
    def test_arrays_are_wrapped(self):
        buffer = gpumap.empty(5000)
        frame = random_array(5000)
        buffer.write(frame)
        wrapped = gpumap.to_gst(buffer)
        self.assertEqual(bytes_of(wrapped), frame.tobytes())
        buffer.host[7] ^= 255  # the same bytes, and no copy
        self.assertEqual(bytes_of(wrapped)[7], int(frame[7]) ^ 255)
        del buffer
        gc.collect()
        self.assertEqual(bytes_of(wrapped)[8:], frame.tobytes()[8:])

    def test_numpy_goes_through_a_pipeline(self):
        frame = random_array((22, 40, 4))
        with Pipeline(
            "appsrc name=in caps=video/x-raw,format=RGBA,width=40,height=22,framerate=1/1 ! gpumapupload ! "
            "gpumapdownload ! appsink name=out sync=false"
        ) as pipeline:
            source = pipeline.pipeline.get_by_name("in")
            self.assertEqual(source.emit("push-buffer", gpumap.to_gst(frame)), Gst.FlowReturn.OK)
            source.emit("end-of-stream")
            sample = pipeline.pull()
            self.assertTrue(same(gpumap.from_gst(sample.get_buffer(), sample.get_caps()).numpy(), frame))

    def test_frames_that_were_read(self):
        ring = gpumap.Ring(2, shape=10)
        with ring.write() as slot:
            slot.host[:] = 3
        with ring.read() as frame:
            wrapped = gpumap.to_gst(frame)
        self.assertEqual(bytes_of(wrapped), b"\x03" * 10)
        for wrong in (7, None, frame):
            with self.assertRaises((TypeError, ValueError, BufferError)):
                gpumap.to_gst(wrong)


class Errors(unittest.TestCase):
    def test_those_of_elements_are_told_whatever_was_loaded_before(self):
        # Debian's GStreamer brings another library along that unwinds exceptions.
        for first in ("", "import gpumap", "import ctypes; ctypes.CDLL('libstdc++.so.6')"):
            with self.subTest(first):
                done = script(
                    f"""{first}
import gi
gi.require_version("Gst", "1.0")
from gi.repository import Gst
Gst.init(None)
line = "videotestsrc ! video/x-raw,format=GRAY8 ! gpumapupload ! gpumapkernel location=/none.comp ! fakesink"
pipeline = Gst.parse_launch(line)
pipeline.set_state(Gst.State.PLAYING)
message = pipeline.get_bus().timed_pop_filtered({PATIENCE} * Gst.SECOND, Gst.MessageType.ERROR)
print(message.parse_error()[0].message)
pipeline.set_state(Gst.State.NULL)
"""
                )
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("/none.comp", done.stdout)


if __name__ == "__main__":
    unittest.main()
