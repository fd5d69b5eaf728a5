# SPDX-License-Identifier: MIT
"""Arrays: what NumPy, DLPack and buffers see of gpumap's memory, and what is refused."""
import ctypes
import gc
import inspect
import os
import random
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref
from pathlib import Path

import numpy

import gpumap
from gpumap import errors

SEED = random.randrange(1 << 32)
RANDOM = numpy.random.default_rng(SEED)
TYPES = [
    "uint8", "int8", "bool", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64",
    "complex64", "complex128",
]  # fmt: skip


def random_array(shape, dtype="uint8"):
    """Random bytes, seen as such elements; of bool 0 and 1."""
    count = int(numpy.prod(shape, dtype="int64"))
    if dtype == "bool":
        return RANDOM.integers(0, 2, shape).astype("bool")
    size = numpy.dtype(dtype).itemsize
    return numpy.frombuffer(RANDOM.bytes(count * size), dtype).reshape(shape).copy()


def same(one, other):
    """Byte by byte: NaN is equal to itself here."""
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("dims", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor),
    ]  # fmt: skip


def versioned(capsule):
    """What a consumer finds in a versioned capsule."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return Versioned.from_address(get(capsule, b"dltensor_versioned"))


class Buffers(unittest.TestCase):
    def test_every_type_and_shape_comes_back(self):
        for dtype in TYPES:
            for shape in [(1,), (13,), (7, 5), (3, 1, 11), (2, 3, 5, 7), ()]:
                with self.subTest(dtype=dtype, shape=shape, seed=SEED):
                    frame = random_array(shape, dtype)
                    buffer = gpumap.empty(shape, dtype)
                    buffer.host[...] = frame
                    self.assertEqual((buffer.shape, buffer.dtype, buffer.nbytes), (shape, dtype, frame.nbytes))
                    self.assertTrue(same(buffer.numpy(), frame))
                    self.assertEqual(buffer.tobytes(), frame.tobytes())
                    if dtype not in ("bool",) or numpy.lib.NumpyVersion(numpy.__version__) >= "1.25.0":
                        self.assertTrue(same(numpy.from_dlpack(buffer), frame))

    def test_types_are_taken_from_other_libraries_names(self):
        class Foreign:
            def __str__(self):
                return "torch.int16"

        for dtype in ("int16", numpy.int16, numpy.dtype("int16"), Foreign()):
            self.assertEqual(gpumap.empty(3, dtype).dtype, "int16")
        with self.assertRaisesRegex(ValueError, "unknown data type str7"):
            gpumap.empty(3, "str7")

    def test_bfloat16_is_seen_by_its_bits(self):
        buffer = gpumap.empty(5, "bfloat16")
        bits = random_array(5, "uint16")
        buffer.host[:] = bits
        self.assertTrue(same(buffer.numpy(), bits))
        tensor = versioned(capsule := buffer.__dlpack__(max_version=(1, 0))).tensor
        self.assertEqual((tensor.code, tensor.bits), (4, 16))
        del capsule

    def test_write_copies_what_fits(self):
        frame = random_array((123, 77), "int16")
        buffer = gpumap.empty((123, 77), "int16")
        for source in (frame, frame.tobytes(), memoryview(frame), numpy.asfortranarray(frame), frame.reshape(-1)):
            buffer.host[...] = 0
            buffer.write(source)
            self.assertTrue(same(buffer.numpy(), frame))
        large = random_array(3_000_001)
        buffer = gpumap.empty(3_000_001)
        buffer.write(large)
        self.assertTrue(same(buffer.numpy(), large))

    def test_write_refuses_what_does_not_fit(self):
        buffer = gpumap.empty((4, 6), "int16")
        for wrong, text in [
            (random_array((6, 4), "int16"), "shapes"),
            (random_array((4, 5), "int16"), "40 bytes"),
            (random_array((4, 6), "uint16"), "convert"),
            (random_array((4, 6), "float16"), "convert"),
            (random_array((4, 6), "int32"), "convert"),
            (b"short", "5 bytes"),
        ]:
            with self.assertRaisesRegex(ValueError, text):
                buffer.write(wrong)
        with self.assertRaises((TypeError, ValueError)):
            buffer.write(object())

    def test_views_share_the_bytes(self):
        frame = random_array(1024)
        buffer = gpumap.empty(1024)
        buffer.write(frame)
        view = buffer.view((4, 25), "int32", offset=8)
        self.assertTrue(same(view.numpy(), frame[8:408].view("int32").reshape(4, 25)))
        view.host[1, 2] = 77
        self.assertEqual(buffer.host[8 : 8 + 400].view("int32").reshape(4, 25)[1, 2], 77)
        buffer.close()
        self.assertEqual(view.host[1, 2], 77)
        for shape, dtype, offset in [((1025,), None, 0), ((4,), "int32", 1010), ((4,), "int32", 3), ((1,), None, -1)]:
            with self.assertRaises(ValueError):
                gpumap.empty(1024).view(shape, dtype, offset=offset)

    def test_a_closed_buffer_raises_and_closes_twice(self):
        with gpumap.empty(100) as buffer:
            view = buffer.host
            tensor = numpy.from_dlpack(buffer)
        buffer.close()
        buffer.close()
        self.assertTrue(buffer.closed)
        for use in (
            lambda: buffer.host, lambda: buffer.shape, buffer.numpy, buffer.tobytes, buffer.__dlpack__,
            buffer.__dlpack_device__, lambda: buffer.write(b"x" * 100), lambda: buffer.view(1), buffer.flush,
            buffer.wait, lambda: numpy.asarray(buffer), buffer.__enter__,
        ):  # fmt: skip
            with self.assertRaises(errors.InvalidArgument):
                use()
        # What was taken before stays good.
        view[:] = 3
        self.assertEqual(int(tensor.sum()), 300)

    def test_code_of_arguments_may_close_the_array(self):
        buffer = None

        class Closes:
            """What it is asked for ends the array that it is an argument of."""

            def _close(self, result):
                buffer.close()
                return result

            def __array__(self, *_, **__):
                return self._close(numpy.zeros(100, "uint8"))

            def __float__(self):
                return self._close(1.0)

            def __bool__(self):
                return self._close(True)

            def __len__(self):
                return self._close(1)

            def __getitem__(self, _):
                return self._close(4)

            @property
            def ptr(self):
                return self._close(0)

        kernel = gpumap.Kernel(builtin="identity")
        for use in (
            lambda: buffer.write(Closes()), lambda: buffer.wait(Closes()), lambda: buffer.view(Closes()),
            lambda: buffer.__dlpack__(copy=Closes()), lambda: buffer.__dlpack__(stream=Closes()),
            lambda: kernel(buffer, stream=Closes()), lambda: kernel(buffer, timeout=Closes()),
        ):  # fmt: skip
            buffer = gpumap.empty(100)
            with self.assertRaisesRegex(errors.InvalidArgument, "is closed"):
                use()

    def test_what_a_kernel_gives_is_as_it_declares(self):
        # As many bytes as the input, of another kind.
        samples = numpy.random.default_rng(5).integers(-32768, 32767, (1003, 2), dtype="int16")
        taken = gpumap.empty(samples.shape, "int16")
        taken.write(samples)
        kernel = gpumap.Kernel(builtin="magnitude")
        given = kernel(taken, caps="audio/x-raw,format=S16LE,rate=48000,channels=2,layout=interleaved", to_host=True)
        got = numpy.asarray(given)
        self.assertEqual(got.dtype, numpy.dtype("float32"))
        expected = numpy.hypot(*(samples.T.astype("float64") / 32768))
        numpy.testing.assert_allclose(got.reshape(-1), expected, rtol=1e-5, atol=1e-6)

    def test_numbers_and_texts_that_would_be_cut(self):
        for call in (
            lambda: gpumap.Pool(4, max_blocks=-1), lambda: gpumap.Pool(4, max_blocks=(1 << 32) + 1),
            lambda: gpumap.Ring((1 << 32) + 2, shape=4), lambda: gpumap.Ring(2, slot_bytes=(1 << 64) + 16),
            lambda: gpumap.serve(gpumap.Ring(2, shape=4), "/nowhere/at/all", mode=-1),
            lambda: gpumap.serve(gpumap.Ring(2, shape=4), "/nowhere\0at/all"),
            lambda: gpumap.Ring(2, shape=4).set_caps("a/b\0c"), lambda: gpumap.empty(4, device="auto\0"),
            lambda: gpumap.empty(4, "uint8\0"),
        ):  # fmt: skip
            with self.assertRaises(ValueError):
                call()

    def test_sizes_without_end_are_refused(self):
        for shape in (10**15, (10**15,), (1 << 31, 1 << 31), (1 << 62, 4), (1 << 40, 1 << 40)):
            with self.assertRaises((MemoryError, ValueError)) as raised:
                gpumap.empty(shape)
            self.assertIsInstance(raised.exception, gpumap.Error)
        for shape in (-1, (3, -2), (1,) * 9):
            with self.assertRaises(ValueError):
                gpumap.empty(shape)
        with self.assertRaises(OverflowError):
            gpumap.empty(1 << 64)
        self.assertEqual(gpumap.empty((0, 7)).numpy().shape, (0, 7))

    def test_placements(self):
        frame = random_array(999)
        for placement in ("bar", "host", "device"):
            buffer = gpumap.empty(999, placement=placement)
            if placement == "device":
                with self.assertRaises(errors.NotSupported):
                    buffer.write(frame)
                with self.assertRaises(errors.NotSupported):
                    buffer.host
            else:
                buffer.write(frame)
                self.assertTrue(same(buffer.numpy(), frame))
        with self.assertRaisesRegex(ValueError, "attic"):
            gpumap.empty(1, placement="attic")

    def test_pools_give_blocks_again(self):
        pool = gpumap.Pool((5, 7), "float32", max_blocks=3)
        blocks = [pool.take() for _ in range(3)]
        frames = [random_array((5, 7), "float32") for _ in blocks]
        for block, frame in zip(blocks, frames):
            block.host[:] = frame
        with self.assertRaises(errors.Full):
            pool.take()
        for block, frame in zip(blocks, frames):
            self.assertTrue(same(block.numpy(), frame))
        del block
        held = numpy.from_dlpack(blocks.pop())
        with self.assertRaises(errors.Full):
            pool.take()
        del held
        self.assertEqual(pool.take().shape, (5, 7))

    def test_devices(self):
        devices = gpumap.devices()
        self.assertGreaterEqual(len(devices), 1)
        device = gpumap.Device()
        self.assertEqual(device.info["uuid"], gpumap.Device(device.info["uuid"]).info["uuid"])
        self.assertIsNone(device.check())
        self.assertEqual(gpumap.empty(3, device=device).shape, (3,))
        with self.assertRaises(errors.NoDevice):
            gpumap.Device("4711")
        with self.assertRaises(TypeError):
            gpumap.empty(3, device=7)

    def test_objects_do_not_travel_to_other_processes(self):
        import pickle

        for thing in (gpumap.empty(3), gpumap.Device(), gpumap.Ring(2, 10)):
            with self.assertRaises(TypeError):
                pickle.dumps(thing)


class Dlpack(unittest.TestCase):
    def setUp(self):
        self.software = gpumap.Device().info["software"]
        if not self.software:
            self.skipTest("with a GPU: see tests/gpu")

    def test_software_is_the_cpu(self):
        buffer = gpumap.empty((3, 5))
        self.assertEqual(buffer.__dlpack_device__(), (1, 0))
        self.assertFalse(hasattr(buffer, "__cuda_array_interface__"))
        self.assertEqual(numpy.from_dlpack(buffer).ctypes.data, buffer.host.ctypes.data)

    def test_versioned_capsules(self):
        buffer = gpumap.empty((3, 5), "int32")
        capsule = buffer.__dlpack__(max_version=(1, 7))
        found = versioned(capsule)
        self.assertEqual((found.major, found.minor, found.flags), (1, 0, 0))
        tensor = found.tensor
        self.assertEqual((tensor.device_type, tensor.device_id, tensor.dims), (1, 0, 2))
        self.assertEqual((tensor.code, tensor.bits, tensor.lanes, tensor.byte_offset), (0, 32, 1, 0))
        self.assertEqual((tensor.shape[0], tensor.shape[1], tensor.strides[0], tensor.strides[1]), (3, 5, 5, 1))
        self.assertEqual(tensor.data, buffer.host.ctypes.data)
        for old in (None, (0, 8)):
            self.assertIn('"dltensor"', repr(buffer.__dlpack__(max_version=old)))

    def test_frames_that_were_read_are_read_only(self):
        ring = gpumap.Ring(2, 9)
        with ring.write() as slot:
            self.assertEqual(versioned(capsule := slot.__dlpack__(max_version=(1, 0))).flags, 0)
            del capsule
        with ring.read() as frame:
            self.assertEqual(versioned(capsule := frame.__dlpack__(max_version=(1, 0))).flags, 1)
            self.assertEqual(versioned(copied := frame.__dlpack__(max_version=(1, 0), copy=True)).flags, 2)
            self.assertFalse(frame.host.flags.writeable)
            with self.assertRaises(ValueError):
                frame.host[0] = 1
            with self.assertRaises(ValueError):
                frame.write(b"x" * 9)
            del capsule, copied

    def test_copies(self):
        frame = random_array((5, 7), "float64")
        buffer = gpumap.empty((5, 7), "float64")
        buffer.host[:] = frame
        copied = versioned(capsule := buffer.__dlpack__(max_version=(1, 0), copy=True))
        buffer.host[:] = 0
        self.assertEqual(ctypes.string_at(copied.tensor.data, frame.nbytes), frame.tobytes())
        self.assertEqual(copied.flags, 2)
        shared = versioned(other := buffer.__dlpack__(max_version=(1, 0), copy=False, dl_device=(1, 0)))
        self.assertEqual(shared.tensor.data, buffer.host.ctypes.data)
        del capsule, other

    def test_what_is_not_to_be_had(self):
        buffer = gpumap.empty(3)
        for keywords in ({"dl_device": (2, 0)}, {"stream": 1}, {"dl_device": (1, 1)}):
            with self.assertRaises(BufferError):
                buffer.__dlpack__(**keywords)
        with self.assertRaises(ValueError):
            buffer.__dlpack__(stream=0)
        with self.assertRaises(TypeError):
            buffer.__dlpack__(strom=1)
        with self.assertRaises(TypeError):
            buffer.__dlpack__(stream="1")
        buffer.__dlpack__(stream=-1)
        buffer.__dlpack__(stream=None)

    def test_capsules_keep_the_bytes_and_no_longer(self):
        """A pool of one block says whether a block is back."""
        pool = gpumap.Pool(100, max_blocks=1)
        block = pool.take()
        capsule = block.__dlpack__()
        del block
        with self.assertRaises(errors.Full):
            pool.take()
        del capsule  # nobody took its tensor
        block = pool.take()
        tensor = numpy.from_dlpack(block)
        view = block.host
        block.close()
        del block, tensor
        with self.assertRaises(errors.Full):
            pool.take()
        del view
        pool.take()

    def test_tensors_go_in_threads(self):
        """Deleters run anywhere, while others make new ones."""
        pool = gpumap.Pool(64, max_blocks=8)
        failures = []

        def work():
            try:
                for _ in range(300):
                    with pool.take() as block:
                        tensors = [numpy.from_dlpack(block) for _ in range(3)]
                    tensors.pop()
                    del tensors
            except BaseException as failure:  # whatever it is, it must reach the test
                failures.append(failure)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertEqual(failures, [])
        blocks = [pool.take() for _ in range(8)]
        self.assertEqual(len(blocks), 8)


class Garbage(unittest.TestCase):
    def test_cycles_are_collected(self):
        class Stream:
            ptr = 0

        ring = gpumap.Ring(2, 10)
        with ring.write():
            pass
        stream = Stream()
        slot = ring.write(stream=stream)
        stream.slot = slot  # slot -> stream -> slot
        gone = weakref.ref(stream)
        del stream, slot
        gc.collect()
        self.assertIsNone(gone())
        # A cycle with memory in it gives it back, too.
        pool = gpumap.Pool(10, max_blocks=1)
        cycle = [pool.take()]
        cycle.append(cycle)
        del cycle
        gc.collect()
        pool.take()

    def test_references_are_counted_right(self):
        buffer = gpumap.empty((3, 4))
        before = sys.getrefcount(buffer), sys.getrefcount(None)
        for _ in range(1000):
            buffer.__dlpack__()
            buffer.__dlpack__(max_version=(1, 0), copy=True)
            buffer.shape, buffer.strides, buffer.dtype, buffer.host, buffer.numpy(), repr(buffer)
            with self.assertRaises(ValueError):
                buffer.write(b"")
        after = sys.getrefcount(buffer), sys.getrefcount(None)
        self.assertEqual(before[0], after[0])
        self.assertLess(abs(after[1] - before[1]), 50)


class Documents(unittest.TestCase):
    """What help() and pydoc show; that _core.pyi says the same is what the test python_stubs looks at."""

    def public(self):
        """Every name that programs use: (name, object)."""
        for module in gpumap, errors:
            for name in getattr(module, "__all__", None) or [name for name in vars(module) if name[0] != "_"]:
                value = getattr(module, name)
                if isinstance(value, type) and not issubclass(value, BaseException):
                    names = [own for own in dir(value) if own[0] != "_"]
                    yield from ((f"{name}.{own}", inspect.getattr_static(value, own)) for own in names)
                if isinstance(value, type) or callable(value):
                    yield name, value

    def test_each_name_has_one(self):
        names = dict(self.public())
        self.assertTrue({"Ring", "Ring.write", "Slot.pts", "Kernel.result", "Timeout", "from_gst"} <= names.keys())
        for name, value in names.items():
            with self.subTest(name):
                self.assertTrue(value.__doc__)
                if callable(value) and not isinstance(value, type) and "timeout" in inspect.signature(value).parameters:
                    self.assertIn("second", value.__doc__)

    def test_pages_are_made(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-W", "error", "-m", "pydoc", "-w", "gpumap", "gpumap.errors"], cwd=folder,
                env={**os.environ, "PYTHONPATH": str(Path(gpumap.__file__).parents[1])}, capture_output=True, text=True,
                check=False, timeout=60,
            )  # fmt: skip
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            page = (Path(folder) / "gpumap.html").read_text()
            for name, value in self.public():
                if "." not in name and value.__module__ != "gpumap.errors":
                    self.assertIn(f"<strong>{name}", page.replace("<strong>class ", "<strong>"), name)


if __name__ == "__main__":
    unittest.main()
