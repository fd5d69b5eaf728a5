# SPDX-License-Identifier: MIT
"""Rings: writing, publishing and reading slots, in one process and across a socket; pictures by their caps."""
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
from arrays_test import RANDOM, random_array, same

import gpumap
from gpumap import errors

NV12 = "video/x-raw,format=NV12,width=37,height=23,framerate=30/1"
PATIENCE = 60  # seconds: what has to come comes, also on a machine that is busy


class OneProcess(unittest.TestCase):
    def test_frames_come_in_order_and_whole(self):
        with gpumap.Ring(slots=3, shape=(7, 11), dtype="uint16") as ring:
            for index in range(20):
                frame = random_array((7, 11), "uint16")
                with ring.write() as slot:
                    slot.host[:] = frame
                    slot.pts, slot.dts, slot.duration = index * 7, None, 3
                    slot.flags, slot.user, slot.offset = 64, index + 5, index
                with ring.read() as got:
                    self.assertTrue(same(got.numpy(), frame))
                    self.assertTrue(same(numpy.from_dlpack(got), frame))
                    self.assertTrue(same(numpy.asarray(got), frame))
                    self.assertEqual((got.pts, got.dts, got.duration), (index * 7, None, 3))
                    self.assertEqual((got.flags, got.user, got.offset, got.offset_end), (64, index + 5, index, None))
                    self.assertEqual(got.sequence, index)
                    self.assertGreater(got.publish_ns, 0)

    def test_write_copies_with_threads(self):
        ring = gpumap.Ring(2, shape=(1031, 1999))
        frame = random_array((1031, 1999))
        with ring.write() as slot:
            slot.write(frame)
        with ring.read() as got:
            self.assertTrue(same(got.numpy(), frame))

    def test_fewer_bytes_in_use(self):
        ring = gpumap.Ring(2, slot_bytes=1000)
        frame = random_array(123)
        with ring.write() as slot:
            self.assertEqual((slot.used, slot.shape), (1000, (1000,)))
            slot.host[:123] = frame
            slot.used = 123
            with self.assertRaises(ValueError):
                slot.used = 1001
        with ring.read() as got:
            self.assertEqual((got.used, got.shape), (123, (123,)))
            self.assertTrue(same(got.numpy(), frame))

    def test_an_exception_gives_the_slot_up(self):
        ring = gpumap.Ring(2, shape=10)
        for _ in range(5):
            with self.assertRaises(ZeroDivisionError), ring.write() as slot:
                slot.host[:] = 1 / 0
        self.assertEqual(ring.info["published"], 0)
        with ring.write() as slot:
            slot.host[:] = 4
        for _ in range(2):
            with self.assertRaises(ZeroDivisionError):
                with ring.write() as slot, ring.read() if ring.info["queued"] else gpumap.empty(1):
                    raise ZeroDivisionError
        with ring.write(0), ring.write(0):
            pass
        self.assertEqual(ring.info["published"], 3)

    def test_use_after_the_with_raises(self):
        ring = gpumap.Ring(2, shape=10)
        with ring.write() as slot:
            pass
        with ring.read() as frame:
            pass
        for array in (slot, frame):
            for use in (
                lambda: array.host, array.__dlpack__, array.numpy, lambda: array.used, lambda: array.caps,
                lambda: array.write(b"x" * 10), array.__enter__, lambda: array.__exit__(None, None, None),
            ):  # fmt: skip
                with self.assertRaises(errors.InvalidArgument):
                    use()
        with self.assertRaises(errors.InvalidArgument):
            slot.pts = 3

    def test_tensors_keep_their_slot(self):
        """Two slots: the one that a tensor reads is not written while it lives."""
        ring = gpumap.Ring(2, shape=50)
        first = random_array(50)
        with ring.write() as slot:
            slot.write(first)
        with ring.read() as frame:
            tensor = numpy.from_dlpack(frame)
        for _ in range(5):
            with ring.write() as slot:
                slot.write(random_array(50))
            with ring.read():
                pass
        with ring.write():
            with self.assertRaises(errors.Full):
                ring.write(0).__enter__()
        self.assertTrue(same(tensor, first))
        del tensor
        with ring.write(0):
            pass

    def test_a_view_of_a_written_slot_outlives_the_ring(self):
        ring = gpumap.Ring(2, shape=5000)
        with ring.write() as slot:
            view = slot.host
        del slot
        ring.close()
        del ring
        view[:] = 7
        self.assertEqual(int(view.sum()), 35000)

    def test_slots_that_are_dropped_come_back(self):
        ring = gpumap.Ring(2, shape=10)
        for _ in range(10):
            slot = ring.write(0)
            slot.__enter__()
            del slot
        self.assertEqual(ring.info["published"], 0)
        with ring.write(), ring.write():
            pass
        for _ in range(2):
            frame = ring.read(0)
            frame.__enter__()
            del frame
        with ring.write(0), ring.write(0):
            pass

    def test_waits_end(self):
        ring = gpumap.Ring(2, shape=10)
        for timeout in (0, 0.01, 0.25):
            with self.assertRaises(TimeoutError):
                ring.read(timeout).__enter__()
        with ring.write(), ring.write():
            with self.assertRaises(errors.Timeout):
                ring.write(0.01).__enter__()
        with ring.write(drop_oldest=True):
            pass
        self.assertEqual(ring.info["dropped"], 1)
        for timeout in (-1, float("nan")):
            with self.assertRaises(ValueError):
                ring.read(timeout)
        ring.drop_queued()
        ended = []

        def read():
            try:
                ring.read().__enter__()
            except errors.Stopped as stopped:
                ended.append(stopped)

        thread = threading.Thread(target=read)
        thread.start()
        ring.stop()
        thread.join(PATIENCE)
        self.assertEqual(len(ended), 1)
        with self.assertRaises(errors.Stopped):
            ring.write().__enter__()
        ring.resume()
        with ring.write():
            pass
        ring.end()
        with ring.read():
            pass
        with self.assertRaises(EOFError):
            ring.read().__enter__()
        with self.assertRaises(errors.Closed):
            ring.write().__enter__()

    def test_close_ends_waits(self):
        ring = gpumap.Ring(2, shape=10)
        raised = []

        def read():
            try:
                ring.read().__enter__()
            except gpumap.Error as error:
                raised.append(error)

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        ring.close()
        ring.close()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual(len(raised), 3)
        for use in (ring.write, ring.read, ring.end, lambda: ring.info, lambda: ring.device, ring.__enter__):
            with self.assertRaises(errors.InvalidArgument):
                use()

    def test_waits_that_a_close_ends_raise_closed(self):
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(PATIENCE)  # threads go on where one waits
        for kind in ("read", "write"):
            ring = gpumap.Ring(2, shape=10)
            if kind == "write":
                for _ in range(2):
                    with ring.write():
                        pass
            raised = []

            def enter(wait=getattr(ring, kind), raised=raised):
                try:
                    wait().__enter__()
                except gpumap.Error as error:
                    raised.append(type(error))

            thread = threading.Thread(target=enter)
            thread.start()
            ring.close()
            thread.join(PATIENCE)
            self.assertEqual(raised, [errors.Closed], kind)

    def test_threads_meet_numpy_together(self):
        """A thread that looks for NumPy while another one imports it."""
        program = """if True:
            import threading, gpumap
            failed = []
            def write():
                ring = gpumap.Ring(2, shape=10)
                for _ in range(4):
                    with ring.write() as slot:
                        failed.extend(["no array"] if isinstance(slot.host, memoryview) else [])
                    with ring.read():
                        pass
            threads = [threading.Thread(target=write) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(failed)
        """
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((said.stdout.strip(), said.stderr), ("[]", ""))

    def test_close_beside_a_write_that_waits(self):
        """A thread that has its slot before another one closes the ring, and learns of it behind that."""
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(PATIENCE)  # threads go on where one waits
        size = 64 << 20  # so much is given back to the system at once
        for _ in range(3):
            ring = gpumap.Ring(2, shape=size)
            for _ in range(2):
                with ring.write():
                    pass
            views = []

            def write(ring=ring, views=views):
                try:
                    with ring.write(timeout=PATIENCE) as slot:
                        views.append(slot.host)
                except gpumap.Error:
                    pass

            thread = threading.Thread(target=write)
            thread.start()
            time.sleep(0.2)
            with ring.read():
                pass
            end = time.monotonic() + 0.05
            while time.monotonic() < end:
                pass
            ring.close()
            thread.join(PATIENCE)
            gc.collect()
            for view in views:
                view[:] = 7
                self.assertEqual(view[size - 1], 7)

    def test_one_slot_and_two_threads(self):
        """However two threads leave one `with`, the frame is published once."""
        ring = gpumap.Ring(4, shape=10)
        for _ in range(200):
            slot = ring.write()
            slot.__enter__()
            results = []

            def leave():
                try:
                    results.append(slot.__exit__(None, None, None))
                except errors.InvalidArgument as error:
                    results.append(error)

            threads = [threading.Thread(target=leave) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
            self.assertEqual(sum(result is False for result in results), 1, results)
            with ring.read(0):
                pass
            with self.assertRaises(errors.Timeout):
                ring.read(0).__enter__()

    def test_bad_rings(self):
        for keywords in (
            {"slots": 1, "shape": 10}, {"slots": 300, "shape": 10}, {"slots": 0, "shape": 10}, {}, {"shape": 0},
            {"shape": 10, "slot_bytes": 9}, {"shape": 10, "transport": "pigeon"}, {"shape": 10, "spin": -1},
            {"shape": 10, "caps": "video/x-raw,format=(("},
        ):  # fmt: skip
            with self.assertRaises(ValueError, msg=keywords):
                gpumap.Ring(**keywords)
        with self.assertRaises(MemoryError):
            gpumap.Ring(shape=10**15)

    def test_transports(self):
        for transport in ("bar", "pinned", "zero-copy", "pageable"):
            try:
                ring = gpumap.Ring(3, shape=(5, 9), transport=transport)
            except errors.NotSupported:
                continue
            for _ in range(5):
                frame = random_array((5, 9))
                with ring.write() as slot:
                    slot.host[:] = frame
                with ring.read() as got:
                    self.assertTrue(same(got.numpy(), frame), transport)


class Pictures(unittest.TestCase):
    def test_planes_of_nv12(self):
        ring = gpumap.Ring(2, caps=NV12)
        luma, chroma = random_array((23, 37)), random_array((12, 19, 2))
        with ring.write() as slot:
            self.assertEqual(slot.ndim, 1)
            one, two = slot.planes
            one.host[:] = luma
            two.write(chroma)
        with ring.read() as frame:
            self.assertIn("NV12", frame.caps)
            self.assertTrue(same(frame.planes[0].numpy(), luma))
            self.assertTrue(same(numpy.from_dlpack(frame.planes[1]), chroma))
            self.assertEqual(frame.planes[0].strides[1], 1)
            self.assertGreaterEqual(frame.planes[0].strides[0], 37)
            bytes_ = numpy.frombuffer(frame.tobytes(), "uint8")
            stride = frame.planes[0].strides[0]
            self.assertTrue(same(bytes_[: 23 * stride].reshape(23, stride)[:, :37].copy(), luma))

    def test_shapes_of_formats(self):
        for text, shape, dtype in [
            ("video/x-raw,format=RGBA,width=5,height=3,framerate=1/1", (3, 5, 4), "uint8"),
            ("video/x-raw,format=RGB,width=5,height=3,framerate=1/1", (3, 5, 3), "uint8"),
            ("video/x-raw,format=GRAY8,width=5,height=3,framerate=1/1", (3, 5), "uint8"),
            ("video/x-raw,format=GRAY16_LE,width=5,height=3,framerate=1/1", (3, 5), "uint16"),
            ("video/x-raw,format=YUY2,width=6,height=3,framerate=1/1", (3, 6, 2), "uint8"),
        ]:
            ring = gpumap.Ring(2, caps=text)
            frame = random_array(shape, dtype)
            with ring.write() as slot:
                self.assertEqual((slot.shape, slot.dtype), (shape, dtype), text)
                slot.host[:] = frame
            with ring.read() as got:
                self.assertEqual((got.shape, got.dtype), (shape, dtype), text)
                self.assertTrue(same(got.numpy(), frame))
                self.assertEqual(len(got.planes), 1)

    def test_samples(self):
        ring = gpumap.Ring(2, caps="audio/x-raw,format=S16LE,channels=2,rate=48000,layout=interleaved", slot_bytes=400)
        frame = random_array((100, 2), "int16")
        with ring.write() as slot:
            slot.host[:] = frame
        with ring.read() as got:
            self.assertTrue(same(got.numpy(), frame))

    def test_caps_change(self):
        ring = gpumap.Ring(4, slot_bytes=6000)
        with ring.write():
            pass
        ring.set_caps("video/x-raw,format=GRAY8,width=12,height=5,framerate=0/1")
        with ring.write() as slot:
            self.assertEqual(slot.shape, (5, 12))
        ring.set_caps("application/x-gpumap-array,dtype=(string)float32,shape=(string)\"3x7\"")
        with ring.write() as slot:
            self.assertEqual((slot.shape, slot.dtype), ((3, 7), "float32"))
        ring.set_caps(None)
        with ring.write() as slot:
            self.assertEqual(slot.shape, (6000,))
        shapes = []
        for _ in range(4):
            with ring.read() as got:
                shapes.append((got.shape, got.dtype))
        self.assertEqual(
            shapes, [((6000,), "uint8"), ((5, 12), "uint8"), ((3, 7), "float32"), ((6000,), "uint8")]
        )
        with self.assertRaises(ValueError):
            ring.set_caps("video/x-raw,(")

    def test_caps_change_within_a_with(self):
        ring = gpumap.Ring(2, slot_bytes=600)
        with ring.write() as slot:
            slot.host[:] = 1
            ring.set_caps("video/x-raw,format=GRAY8,width=12,height=5,framerate=0/1")
        for _ in range(4):
            with ring.write(drop_oldest=True) as slot:
                self.assertEqual((slot.shape, slot.host.shape), ((5, 12), (5, 12)))

    def test_the_end_of_a_view_may_use_the_ring(self):
        ring = gpumap.Ring(8, slot_bytes=600)
        ends, seen = [], []

        def write():
            with ring.write(drop_oldest=True) as slot:
                slot.host[:] = 7
                return slot.host

        for _ in range(8):
            ends.append(weakref.ref(write(), lambda _: seen.append(write().shape)))
        ring.set_caps("video/x-raw,format=GRAY8,width=12,height=5,framerate=0/1")
        self.assertEqual(seen, [(5, 12)] * 8)

    def test_caps_of_frames_that_have_no_room(self):
        gray, array = "video/x-raw,format=GRAY8", "application/x-gpumap-array,dtype=(string)float32,shape=(string)"
        nv12 = "video/x-raw,format=NV12"
        ring = gpumap.Ring(2, slot_bytes=100)
        for caps in (f"{gray},width=11,height=10", f"{nv12},width=16,height=16", f'{array}"26"'):
            with self.assertRaisesRegex(ValueError, "slots of 100 bytes"):
                ring.set_caps(caps)
            with ring.write(drop_oldest=True) as slot:
                self.assertEqual((slot.shape, slot.caps), ((100,), ""))
        for caps in (f"{gray},width=64,height=64", f"{nv12},width=64,height=64"):
            for keywords in ({"slot_bytes": 100}, {"shape": 100}):
                with self.assertRaisesRegex(ValueError, "slots of 100 bytes"):
                    gpumap.Ring(2, caps=caps, **keywords)


class Sockets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "ring"

    def test_another_ring_reads_what_one_serves(self):
        ring = gpumap.Ring(6, shape=(9, 31), dtype="float32")
        with gpumap.serve(ring, self.path) as server:
            with self.assertRaises(errors.InvalidArgument):
                ring.read(0).__enter__()
            with gpumap.connect(self.path, PATIENCE, leaky="no", name="test") as reader:
                server.wait_for_client(PATIENCE)
                self.assertEqual(server.info["clients"], 1)
                self.assertTrue(reader.info["connected"])
                for index in range(30):
                    frame = random_array((9, 31), "float32")
                    with ring.write(PATIENCE) as slot:
                        slot.host[:] = frame
                        slot.pts = index
                    with reader.read(PATIENCE) as got:
                        self.assertEqual((got.shape, got.dtype, got.pts), ((9, 31), "float32", index))
                        self.assertTrue(same(got.numpy(), frame))
                ring.end()
                with self.assertRaises((EOFError, errors.Closed)):
                    reader.read(PATIENCE).__enter__()
        server.close()
        with self.assertRaises(errors.InvalidArgument):
            server.info

    def test_a_shape_of_more_bytes_than_there_are(self):
        """A producer may say anything: 2^64 bytes and 8 more are not 8."""
        ring = gpumap.Ring(4, slot_bytes=100)
        with gpumap.serve(ring, self.path) as server, gpumap.connect(self.path, PATIENCE) as reader:
            server.wait_for_client(PATIENCE)
            for shape in ("2305843009213693953x2", "9223372036854775807x2", "9223372036854775807x9223372036854775807"):
                ring.set_caps(f'application/x-gpumap-array,dtype=(string)float32,shape=(string)"{shape}"')
                with ring.write(PATIENCE):
                    pass
                with reader.read(PATIENCE) as frame:
                    self.assertEqual((frame.shape, frame.dtype, frame.nbytes), ((100,), "uint8", 100), shape)

    def test_nobody_serves(self):
        with self.assertRaises(OSError):
            gpumap.connect(self.path)
        with self.assertRaises(errors.IOFailed):
            gpumap.connect(self.path, 0.15)
        with self.assertRaises(ValueError):
            gpumap.connect(self.path, leaky="sometimes")
        with self.assertRaises(TypeError):
            gpumap.connect(7)
        self.path.write_text("a file")
        with self.assertRaises(errors.Error):
            gpumap.serve(gpumap.Ring(4, 10), self.path)
        self.assertEqual(self.path.read_text(), "a file")

    def test_a_server_without_a_reader(self):
        ring = gpumap.Ring(4, shape=10)
        server = gpumap.serve(ring, os.fspath(self.path))
        with self.assertRaises(TimeoutError):
            server.wait_for_client(0.05)
        for _ in range(20):
            with ring.write(PATIENCE):
                pass
        server.close()
        self.assertFalse(self.path.exists())


def waiting_kernel(folder):
    """One that waits until the first byte of its input is not 0, and an input for it."""
    source = Path(folder) / "waits.comp"
    source.write_text(WAITS)
    buffer = gpumap.empty(1000)
    buffer.write(numpy.zeros(1000, "uint8"))
    return gpumap.Kernel(source, backend="vulkan"), buffer


class Kernels(unittest.TestCase):
    def test_identity_of_a_buffer_and_of_a_slot(self):
        frame = random_array((17, 40))
        kernel = gpumap.Kernel(builtin="identity")
        buffer = gpumap.empty((17, 40))
        buffer.write(frame)
        out = kernel(buffer)
        self.assertTrue(same((buffer if out is None else out).numpy(), frame))
        self.assertEqual(kernel.info["name"], "identity")

    def test_a_kernel_of_a_file_with_parameters(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "add.comp"
            source.write_text(KERNEL)
            kernel = gpumap.Kernel(source, backend="vulkan", amount=3)
            ring = gpumap.Ring(2, shape=(8, 64))
            frame = RANDOM.integers(0, 200, (8, 64)).astype("uint8")
            for amount in (3, 11, numpy.array(12), numpy.array(13.0)):
                kernel.set(amount=amount)
                with ring.write() as slot:
                    slot.write(frame)
                with ring.read() as got:
                    out = kernel(got)
                self.assertEqual(out.shape, (8, 64))
                self.assertTrue(same(out.numpy(), frame + numpy.uint8(amount)))
                out.wait(PATIENCE)
                self.assertTrue(same(numpy.from_dlpack(out), frame + numpy.uint8(amount)))
            kernel.close()
            kernel.close()
            with self.assertRaises(errors.InvalidArgument):
                kernel(out)
            with self.assertRaises(errors.InvalidArgument):
                gpumap.Kernel(source, backend="vulkan", nonsense=1)
            source.write_text(KERNEL.replace("load_u8(", "load_amounts("))
            with self.assertRaisesRegex(errors.CompileError, "load_amounts"):
                gpumap.Kernel(source, backend="vulkan")

    def test_convert_gives_a_picture(self):
        kernel = gpumap.Kernel(builtin="convert")
        ring = gpumap.Ring(2, caps="video/x-raw,format=GRAY8,width=16,height=6,framerate=1/1,colorimetry=1:1:0:0")
        frame = random_array((6, 16))
        with ring.write() as slot:
            slot.host[:] = frame
        with ring.read() as got:
            out = kernel(got, out="video/x-raw,format=RGBA,width=16,height=6,framerate=1/1")
        self.assertEqual((out.shape, out.dtype), ((6, 16, 4), "uint8"))
        picture = out.numpy()
        self.assertTrue((picture[..., 3] == 255).all())
        self.assertTrue((picture[..., 0] == picture[..., 1]).all())

    def test_results(self):
        kernel = gpumap.Kernel(builtin="checksum")
        frame = random_array(1000)
        buffer = gpumap.empty(1000)
        buffer.write(frame)
        kernel(buffer)
        first = kernel.result(PATIENCE)
        kernel(buffer)
        self.assertEqual(kernel.result(PATIENCE), first)
        buffer.host[3] ^= 1
        kernel(buffer)
        self.assertNotEqual(kernel.result(PATIENCE), first)
        self.assertEqual(kernel.info["frames"], 3)
        with self.assertRaisesRegex(errors.InvalidArgument, "kernel identity tells no results"):
            gpumap.Kernel(builtin="identity").result(0)

    def test_a_kernel_of_a_part_of_a_slot(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "add.comp"
            source.write_text(KERNEL)
            kernel = gpumap.Kernel(source, backend="vulkan", amount=5)
            ring = gpumap.Ring(2, caps=NV12.replace("width=37", "width=40"))
            frame = RANDOM.integers(0, 200, 1440).astype("uint8")  # 24 and 12 rows of 40 bytes
            with ring.write() as slot:
                slot.write(frame)
            with ring.read() as got:
                luma, chroma = got.planes
                part = got.view((5, 40), "uint8", offset=40)
                for array, first in ((luma, 0), (chroma, 960), (part, 40)):
                    out = kernel(array)
                    end = first + out.nbytes
                    self.assertTrue(same(out.numpy().reshape(-1), frame[first:end] + numpy.uint8(5)))
            ring = gpumap.Ring(2, caps=NV12)
            with ring.write() as slot:
                slot.write(frame)
            with ring.read() as got, self.assertRaisesRegex(ValueError, "gaps between them"):
                kernel(got.planes[0])

    def test_a_slot_whose_stream_cannot_be_waited_for_is_free(self):
        class Stream:
            cuda_stream = 1234

        ring = gpumap.Ring(2, shape=10)
        for _ in range(4):
            with self.assertRaises(gpumap.Error), ring.write(0, stream=Stream()) as slot:
                slot.close()
                raise errors.NotSupported
            with self.assertRaises(errors.NotSupported), ring.write(0, stream=Stream()):
                pass
        with ring.write(0):
            pass

    def test_threads_that_ask_a_kernel_while_it_runs_keep_nobody(self):
        failed = []

        def attempt(call):
            try:
                call()
            except Exception as error:
                failed.append(error)

        with tempfile.TemporaryDirectory() as folder:
            kernel, buffer = waiting_kernel(folder)
            calls = [lambda: kernel(buffer, timeout=PATIENCE), lambda: kernel.set(amount=2), lambda: kernel.info]
            threads = [threading.Thread(target=attempt, args=[call]) for call in calls]
            for thread in threads:
                thread.start()
                time.sleep(0.2)
            buffer.host[0] = 1  # which ends it, if this thread comes to it
            for thread in threads:
                thread.join()
        self.assertEqual(failed, [])

    def test_a_read_ends_with_its_time_and_loses_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            kernel, buffer = waiting_kernel(folder)
            thread = threading.Thread(target=lambda: kernel(buffer, timeout=PATIENCE))
            thread.start()
            time.sleep(0.3)
            ring = gpumap.Ring(2, shape=1000, transport="pinned")  # whose frames are copied behind the kernel
            frames = [random_array(1000) for _ in range(2)]
            for frame in frames:
                with ring.write() as slot:
                    slot.host[:] = frame
            with self.assertRaises(errors.Timeout):
                ring.read(0).__enter__()
            raised = []

            def read(timeout):
                try:
                    ring.read(timeout).__enter__()
                except gpumap.Error as error:
                    raised.append(type(error))

            # The first has the first frame, and gives it back last.
            readers = [threading.Thread(target=read, args=[timeout]) for timeout in (1.5, 0.5)]
            for reader in readers:
                reader.start()
                time.sleep(0.2)
            for reader in readers:
                reader.join()
            self.assertEqual(raised, [errors.Timeout] * 2)
            reader = threading.Thread(target=read, args=[None])
            reader.start()
            time.sleep(0.2)
            ring.stop()
            reader.join()
            self.assertEqual(raised[2:], [errors.Stopped])
            with self.assertRaises(errors.Stopped):
                ring.read(PATIENCE).__enter__()
            ring.resume()
            buffer.host[0] = 1
            thread.join()
            for frame in frames:
                with ring.read(PATIENCE) as got:
                    self.assertTrue(same(got.numpy(), frame))

    def test_a_slot_that_is_closed_while_its_read_waits(self):
        with tempfile.TemporaryDirectory() as folder:
            kernel, buffer = waiting_kernel(folder)
            thread = threading.Thread(target=lambda: kernel(buffer, timeout=PATIENCE))
            thread.start()
            time.sleep(0.3)
            ring = gpumap.Ring(2, shape=1000, transport="pinned")
            for value in range(2):
                with ring.write() as slot:
                    slot.host[:] = value
            frame = ring.read(0.5)
            raised = []

            def read():
                try:
                    frame.__enter__()
                except gpumap.Error as error:
                    raised.append(type(error))

            reader = threading.Thread(target=read)
            reader.start()
            time.sleep(0.2)
            frame.close()
            reader.join()
            self.assertEqual(raised, [errors.Timeout])
            buffer.host[0] = 1
            thread.join()
            with ring.read(PATIENCE) as got:  # the frame behind the one that was given up
                self.assertTrue((got.numpy() == 1).all())

    def test_a_write_that_copies_behind_a_kernel_ends_with_stop(self):
        with tempfile.TemporaryDirectory() as folder:
            kernel, buffer = waiting_kernel(folder)
            thread = threading.Thread(target=lambda: kernel(buffer, timeout=PATIENCE))
            thread.start()
            time.sleep(0.3)
            ring = gpumap.Ring(2, shape=1000, transport="pageable")
            raised = []

            def write():
                try:
                    with ring.write() as slot:
                        slot.host[:] = 7
                except gpumap.Error as error:
                    raised.append(type(error))

            writer = threading.Thread(target=write)
            writer.start()
            time.sleep(0.2)
            ring.stop()
            writer.join()
            self.assertEqual(raised, [errors.Stopped])
            buffer.host[0] = 1
            thread.join()

    def test_what_is_given_back_behind_a_kernel_keeps_nobody(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "slow.comp"
            source.write_text(SLOW)
            kernel = gpumap.Kernel(source, backend="vulkan")
            for kind in ("host", "dlpack"):
                with self.subTest(kind):
                    buffer = gpumap.empty((480, 640))
                    views = [buffer.host if kind == "host" else numpy.from_dlpack(buffer)]
                    with self.assertRaises(errors.Timeout):
                        kernel(buffer, to_host=True, timeout=0)
                    del buffer
                    thread = threading.Thread(target=views.clear)
                    thread.start()
                    time.sleep(0.1)
                    self.assertTrue(thread.is_alive(), "this thread stood still as well")
                    thread.join()

    def test_what_is_closed_in_its_use_behind_a_kernel_keeps_nobody(self):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "slow.comp"
            source.write_text(SLOW)
            kernel = gpumap.Kernel(source, backend="vulkan")

            def run(array, timeout=0):
                with self.assertRaises(errors.Timeout):
                    kernel(array, to_host=True, timeout=timeout)

            def read(ring):
                with ring.read() as frame:
                    run(frame)
                    ring.close()

            def write(ring):
                with ring.read() as frame:
                    run(frame)
                with ring.write():
                    ring.close()

            def wait(ring):
                with ring.read() as frame:
                    run(frame)
                closes = threading.Timer(0.1, ring.close)
                closes.start()
                with self.assertRaises(errors.Closed):
                    ring.read().__enter__()
                closes.join()

            def call(_):
                buffer = gpumap.empty((480, 640))
                closes = threading.Timer(0.1, buffer.close)
                closes.start()
                run(buffer, timeout=0.3)
                closes.join()

            for use in (read, write, wait, call):
                with self.subTest(use.__name__), ThreadPoolExecutor() as threads:
                    ring = gpumap.Ring(2, shape=(480, 640), transport="pinned")
                    with ring.write():
                        pass
                    began = last = time.monotonic()
                    pause = 0
                    done = threads.submit(use, ring)
                    while not done.done():
                        time.sleep(0.01)
                        pause, last = max(pause, time.monotonic() - last), time.monotonic()
                    done.result()
                    self.assertLess(pause, (last - began) / 2, "this thread stood still as well")

    def test_no_time_for_a_kernel_is_no_minute(self):
        with tempfile.TemporaryDirectory() as folder:
            kernel, buffer = waiting_kernel(folder)
            # Ends the kernel, if the call waits for it.
            end = threading.Timer(2, lambda: buffer.host.__setitem__(0, 1))
            end.start()
            with self.assertRaises(errors.Timeout):
                kernel(buffer, to_host=True, timeout=0)
            end.join()

    def test_what_a_kernel_does_not_take(self):
        kernel = gpumap.Kernel(builtin="identity")
        with self.assertRaises(TypeError):
            kernel(numpy.zeros(10))
        with gpumap.Ring(2, shape=10).write() as slot, self.assertRaises(ValueError):
            kernel(slot)
        with self.assertRaises(ValueError):
            kernel(gpumap.empty(0))
        # The output is what the kernel gave, whatever `out` says.
        self.assertEqual(kernel(gpumap.empty(16), out="video/x-raw,format=GRAY8,width=64,height=64").shape, (16,))
        in_itself = []
        in_itself.append(in_itself)
        with self.assertRaises(RecursionError):
            gpumap.Kernel(builtin="convert", mean=in_itself)
        both = {"file": "a.cu", "builtin": "identity"}
        for keywords in ({}, both, {"builtin": "nonsense"}, {"file": "/nowhere.comp"}):
            with self.assertRaises(gpumap.Error):
                gpumap.Kernel(**keywords)


# Some seconds.
SLOW = """#version 460
#include <gpumap.glsl>
// gpumap: block 256
// gpumap: grid 1200
void main() {
  uint value = gl_GlobalInvocationID.x;
  for (uint i = 0u; i < 20000u; ++i) value = value * 1664525u + 1013904223u;
  store_u8(frame.out_view.plane[0] + gl_GlobalInvocationID.x, value & 255u);
}
"""

# Until the first byte is not 0. lavapipe leaves a loop after 65535 turns, but millions of threads take minutes.
WAITS = """// gpumap: params amount:u32=1
// gpumap: block 256
// gpumap: grid 65535
#version 460
#include <gpumap.glsl>
layout(buffer_reference, scalar) volatile buffer Word { uint value; };
void main() {
  Word word = Word(frame.in_view.plane[0]);
  for (uint i = 0u; i < 65000u && atomicOr(word.value, 0u) == 0u; ++i) {}
  if (gpumap_thread() == 0u) store_u8(frame.out_view.plane[0], uint(frame.params[0]));
}
"""

KERNEL = """// gpumap: params amount:u32=1
#version 460
#include <gpumap.glsl>
void main() {
  const uint64_t from = frame.in_view.plane[0];
  const uint64_t to = frame.out_view.plane[0];
  for (uint64_t i = gpumap_thread(); i < frame.in_view.bytes; i += gpumap_thread_count()) {
    store_u8(to + i, load_u8(from + i) + uint(frame.params[0]));
  }
}
"""


if __name__ == "__main__":
    unittest.main()
