# SPDX-License-Identifier: MIT
"""On a GPU: what NumPy wrote into a slot is what CuPy, PyTorch and JAX read, where it lies, in the process and across a
socket, also behind an appsink. Needs gpumap on PYTHONPATH, an NVIDIA GPU, NumPy, appsink.py of tests/python there or
beside this; for appsinks GStreamer with gpumap's plugin, libgstgpumap-1.0.so.0 and libgstapp-1.0.so.0. Skips each
library that is missing, and exits with 77 where nothing can be tried.

  python3 python_gpu_test.py [NAME...]   as unittest takes them
"""
import contextlib
import importlib
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy

    import gpumap

    HAS_CUDA = any(device["cuda_ordinal"] >= 0 for device in gpumap.devices())
except (ImportError, gpumap.Error if "gpumap" in globals() else ImportError) as reason:
    print("skipped:", reason)
    sys.exit(77)
if not HAS_CUDA:
    print("skipped: no GPU with CUDA here")
    sys.exit(77)

from gpumap import errors  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
from appsink import AppSink, Producer  # noqa: E402

NV12 = "video/x-raw,format=NV12,width=64,height=22,framerate=30/1"
PATIENCE = 60  # seconds
RANDOM = numpy.random.default_rng()
# JAX would take three quarters of the GPU.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def library(name):
    """The module, with a GPU that it can use; else the test is skipped."""
    try:
        module = importlib.import_module(name)
    except Exception as error:  # a library that is broken is missing, too
        raise unittest.SkipTest(f"no {name}: {error}") from None
    if name == "torch" and not module.cuda.is_available():
        raise unittest.SkipTest("this torch has no CUDA")
    if name == "jax" and module.default_backend() != "gpu":
        raise unittest.SkipTest("this jax has no GPU")
    return module


def appsink(elements):
    try:
        return AppSink(f"{elements} ! video/x-raw(memory:GPUMap) ! appsink name=out sync=false")
    except (OSError, RuntimeError) as error:
        raise unittest.SkipTest(f"no pipeline: {error}") from None


def random_array(shape, dtype="uint8"):
    return RANDOM.integers(0, 200, shape).astype(dtype)


class Torch:
    def __init__(self):
        self.module = library("torch")

    def tensor(self, array):
        return self.module.from_dlpack(array)

    def view(self, array):
        return self.module.as_tensor(array, device="cuda")

    def numpy(self, tensor):
        return tensor.cpu().numpy()

    def address(self, tensor):
        return tensor.data_ptr()

    def new_stream(self):
        return self.module.cuda.Stream()

    def on(self, stream):
        return self.module.cuda.stream(stream)

    def synchronize(self):
        self.module.cuda.synchronize()


class Cupy:
    def __init__(self):
        self.module = library("cupy")

    def tensor(self, array):
        return self.module.from_dlpack(array)

    def view(self, array):
        return self.module.asarray(array)

    def numpy(self, tensor):
        return self.module.asnumpy(tensor)

    def address(self, tensor):
        return tensor.data.ptr

    def new_stream(self):
        return self.module.cuda.Stream(non_blocking=True)

    def on(self, stream):
        return stream

    def synchronize(self):
        self.module.cuda.Device().synchronize()


class Jax:
    def __init__(self):
        self.module = library("jax")
        self.dlpack = importlib.import_module("jax.dlpack")

    def tensor(self, array):
        return self.dlpack.from_dlpack(array)

    def numpy(self, tensor):
        return numpy.asarray(tensor)

    def address(self, tensor):
        return tensor.unsafe_buffer_pointer()

    def synchronize(self):
        self.module.effects_barrier()


class Reads:
    """What each library must do with a frame; `kind` is one of those above."""

    kind = None

    def setUp(self):
        self.library = self.kind()

    def test_a_buffer(self):
        for shape, dtype in [((13, 77), "uint8"), ((3, 5, 7), "int32"), ((1000,), "float32")]:
            buffer = gpumap.empty(shape, dtype)
            frame = random_array(shape, dtype)
            buffer.host[:] = frame
            self.assertEqual(buffer.__dlpack_device__(), (2, gpumap.Device().info["cuda_ordinal"]))
            tensor = self.library.tensor(buffer)
            self.assertEqual(self.library.address(tensor), buffer.cuda_address)
            self.assertTrue((self.library.numpy(tensor) == frame).all())
            self.assertTrue((buffer.numpy() == frame).all())

    def test_slots_in_the_process(self):
        ring = gpumap.Ring(4, shape=(37, 201), dtype="int16")
        for index in range(50):
            frame = random_array((37, 201), "int16")
            with ring.write() as slot:
                address = slot.cuda_address
                slot.write(frame) if index % 2 else slot.host.__setitem__(slice(None), frame)
            with ring.read() as got:
                tensor = self.library.tensor(got)
                self.assertEqual(self.library.address(tensor), address)
                self.assertTrue((self.library.numpy(tensor) == frame).all())
            del tensor

    def test_slots_across_a_socket(self):
        frames = [random_array((37, 201)) for _ in range(20)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ring"
            producer = subprocess.Popen([sys.executable, "-c", PRODUCER, str(path)], stdin=subprocess.PIPE)
            try:
                with gpumap.connect(path, PATIENCE, leaky="no") as ring:
                    for frame in frames:
                        producer.stdin.write(frame.tobytes())
                        producer.stdin.flush()
                        with ring.read(PATIENCE) as got:
                            tensor = self.library.tensor(got)
                            self.assertEqual(self.library.address(tensor), got.cuda_address)
                            self.assertTrue((self.library.numpy(tensor) == frame).all())
                            self.assertEqual(got.shape, (37, 201))
                        held, tensor = tensor, None
                    producer.kill()
                    producer.wait(PATIENCE)
                    with self.assertRaises(errors.Closed):
                        ring.read(PATIENCE).__enter__()
                # The producer is gone: the memory is not.
                self.assertTrue((self.library.numpy(held) == frames[-1]).all())
            finally:
                producer.kill()
                producer.wait(PATIENCE)
                producer.stdin.close()

    def test_an_appsinks_frames(self):
        frames = f"videotestsrc pattern=snow num-buffers=20 ! {NV12} ! "
        for elements in "gpumapupload", "gpumapsink sync=false  gpumapsrc":
            with self.subTest(elements), appsink(frames + elements) as sink:
                addresses = set()
                for _ in range(20):
                    array = gpumap.from_gst(*sink.pull())
                    tensor = self.library.tensor(array)
                    self.assertEqual(self.library.address(tensor), sink.slot_address())
                    self.assertTrue((self.library.numpy(tensor) == array.numpy()).all())
                    addresses.add(array.cuda_address)
                    del array, tensor
                self.assertLess(len(addresses), 20)  # of a ring, and not a new one for each

    def test_an_appsinks_frames_across_a_socket(self):
        with tempfile.TemporaryDirectory() as folder, Producer(f"{folder}/ring", NV12) as producer:
            with appsink(f"gpumapsrc socket-path={folder}/ring") as sink:
                tensor = self.library.tensor(gpumap.from_gst(*sink.pull()))
                self.assertEqual(self.library.address(tensor), sink.slot_address())
                producer.fill(77)  # read once only: JAX keeps what it has read
                self.assertTrue((self.library.numpy(tensor) == 77).all())
                del tensor

    def test_a_tensor_holds_its_slot(self):
        ring = gpumap.Ring(2, shape=100)
        first = random_array(100)
        with ring.write() as slot:
            slot.write(first)
        with ring.read() as got:
            tensor = self.library.tensor(got)
        for _ in range(20):
            with ring.write(PATIENCE) as slot:
                slot.write(random_array(100))
            with ring.read():
                pass
        self.assertTrue((self.library.numpy(tensor) == first).all())
        del tensor
        self.library.synchronize()
        with ring.write(PATIENCE), ring.write(PATIENCE):
            pass

    def test_a_kernels_output(self):
        frame = random_array((64, 48))
        buffer = gpumap.empty((64, 48))
        buffer.write(frame)
        kernel = gpumap.Kernel(Path(SOURCES) / "invert.cu")
        tensor = self.library.tensor(kernel(buffer))
        self.assertTrue((self.library.numpy(tensor) == 255 - frame).all())


class Streams:
    """Of libraries that let one choose a stream."""

    def test_the_slot_is_kept_until_the_stream_is_done(self):
        """A long chain of work on a side stream, and a producer that is quick: two slots."""
        ring = gpumap.Ring(2, shape=(1 << 20,), dtype="float32")
        stream = self.library.new_stream()
        results, expected = [], []
        for _ in range(30):
            value = int(RANDOM.integers(1, 100))
            expected.append(value)
            with ring.write(PATIENCE) as slot:
                slot.host[:] = value
            with self.library.on(stream), ring.read(PATIENCE, stream=stream) as got:
                tensor = self.library.tensor(got)
                slow = tensor
                for _ in range(40):
                    slow = slow * 1 + 0
                # The frame itself is read last: a slot that came back too early has another value by then.
                results.append((tensor * 1 + slow * 0).max())
                del tensor, slow
        self.library.synchronize()
        self.assertEqual([int(result) for result in results], expected)

    def test_a_stream_writes_a_slot(self):
        ring = gpumap.Ring(2, shape=(1 << 18,), dtype="float32")
        stream = self.library.new_stream()
        for value in range(1, 20):
            with self.library.on(stream), ring.write(PATIENCE, stream=stream) as slot:
                tensor = self.library.tensor(slot)
                tensor[:] = 0
                for _ in range(30):
                    tensor += 1
                tensor *= value
                del tensor
            with ring.read(PATIENCE) as got:
                self.assertTrue((got.numpy() == 30 * value).all())

    def test_a_slot_that_is_given_up_is_free_behind_its_stream(self):
        """Written past DLPack, so that `stream` alone tells of the work."""
        ring = gpumap.Ring(2, shape=(1 << 20,), dtype="float32")
        stream = self.library.new_stream()
        for way in ("exception", "close"):
            with self.subTest(way), self.library.on(stream):
                slot = ring.write(PATIENCE, stream=stream)
                with contextlib.suppress(ZeroDivisionError), slot:
                    address = slot.cuda_address
                    view = self.library.view(slot)
                    for _ in range(2000):
                        view[:] = view * 0 + 7
                    del view
                    if way == "close":
                        slot.close()
                    raise ZeroDivisionError
            with ring.write(0) as slot:
                self.assertEqual(slot.cuda_address, address)
                slot.host[:] = 1
            self.library.synchronize()
            with ring.read(PATIENCE) as got:
                self.assertTrue((got.numpy() == 1).all())

    def test_stream_arguments(self):
        buffer = gpumap.empty(10)
        handle = self.library.new_stream()
        for stream in (None, 1, 2, -1, handle):
            buffer.__dlpack__(stream=stream)
            buffer.__dlpack__(stream=stream, max_version=(1, 0), copy=True)
        for stream in (0, "1", object()):
            with self.assertRaises((ValueError, TypeError)):
                buffer.__dlpack__(stream=stream)
        frame = random_array(10)
        buffer.write(frame)
        self.assertTrue((numpy.from_dlpack(Host(buffer)) == frame).all())
        with self.assertRaises(BufferError):
            buffer.__dlpack__(dl_device=(1, 0), copy=False)


class Host:
    """Asks for a copy in the CPU's memory, as numpy.from_dlpack(x, device="cpu") does from NumPy 2.1 on."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **_):
        return self.array.__dlpack__(dl_device=(1, 0))

    def __dlpack_device__(self):
        return (1, 0)


class TorchReads(Reads, Streams, unittest.TestCase):
    kind = Torch

    def test_by_the_cuda_array_interface(self):
        buffer = gpumap.empty((9, 31), "int32")
        frame = random_array((9, 31), "int32")
        buffer.host[:] = frame
        tensor = self.library.module.as_tensor(buffer, device="cuda")
        self.assertEqual(tensor.data_ptr(), buffer.cuda_address)
        self.assertTrue((tensor.cpu().numpy() == frame).all())


class CupyReads(Reads, Streams, unittest.TestCase):
    kind = Cupy

    def test_by_the_cuda_array_interface(self):
        ring = gpumap.Ring(2, caps="video/x-raw,format=NV12,width=37,height=22,framerate=1/1")
        frame = random_array((22, 37))
        with ring.write() as slot:
            slot.planes[0].write(frame)
        with ring.read() as got:
            luma = got.planes[0]
            tensor = self.library.module.asarray(luma)
            self.assertEqual((tensor.data.ptr, tensor.strides), (luma.cuda_address, luma.strides))
            self.assertTrue((self.library.module.asnumpy(tensor) == frame).all())


class JaxReads(Reads, unittest.TestCase):
    kind = Jax


class Exit(unittest.TestCase):
    def test_with_tensors_out(self):
        """Seen: a segmentation fault at exit where something holds a mapping and PyTorch is loaded."""
        library("torch")
        done = subprocess.run(
            [sys.executable, "-c", EXIT], capture_output=True, text=True, timeout=PATIENCE * 5, check=False
        )
        self.assertEqual((done.returncode, done.stdout), (0, "end\n"), done.stderr)


PRODUCER = """
import sys, numpy, gpumap
ring = gpumap.Ring(8, shape=(37, 201))
server = gpumap.serve(ring, sys.argv[1])
while frame := sys.stdin.buffer.read(37 * 201):
    server.wait_for_client(60)
    with ring.write(60) as slot:
        slot.write(frame)
"""
EXIT = """
import torch, gpumap
ring = gpumap.Ring(4, shape=(1000, 1000))
with ring.write() as slot:
    slot.host[:] = 1
with ring.read(stream=torch.cuda.current_stream()) as frame:
    tensor = torch.from_dlpack(frame)
held = ring.write()
held.__enter__()
buffer = gpumap.empty(1 << 20)
other = torch.from_dlpack(buffer)
sums = [tensor.sum() for _ in range(100)]
print("end", flush=True)
"""
SOURCES = os.environ.get("GPUMAP_EXAMPLE_KERNELS", Path(__file__).resolve().parents[2] / "examples/kernels")


if __name__ == "__main__":
    unittest.main(verbosity=2)
