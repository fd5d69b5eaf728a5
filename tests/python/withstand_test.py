# SPDX-License-Identifier: MIT
"""What must not break: processes that fork, die or end in the middle, and rounds without end."""
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import unittest
from pathlib import Path

import numpy
from arrays_test import random_array, same

import gpumap
from gpumap import errors

PATIENCE = 60  # seconds: what has to come comes, also on a machine that is busy
ROUNDS = int(os.environ.get("GPUMAP_TEST_ROUNDS", "1000000"))


def read_one(path, results):
    """In a process of its own: the first frame's sum, or the name of what was raised."""
    try:
        with gpumap.connect(path, PATIENCE, leaky="no") as ring, ring.read(PATIENCE) as frame:
            results.put(int(numpy.from_dlpack(frame).sum()))
    except BaseException as error:  # whatever it is, it must reach the test
        results.put(type(error).__name__)


def script(text, *arguments, **keywords):
    """Runs Python in a process of its own."""
    return subprocess.run(
        [sys.executable, "-W", "ignore:.*multi-threaded:DeprecationWarning", "-c", textwrap.dedent(text), *map(str, arguments)],
        capture_output=True, text=True, timeout=PATIENCE * 2, check=False, **keywords,
    )  # fmt: skip


class Processes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "ring"

    def exchange(self, method):
        """What a child that was started so reads of a ring of ours."""
        ring = gpumap.Ring(6, shape=(13, 17))
        frame = random_array((13, 17))
        context = multiprocessing.get_context(method)
        results = context.Queue()
        with gpumap.serve(ring, self.path) as server:
            child = context.Process(target=read_one, args=(os.fspath(self.path), results))
            child.start()
            if method != "fork":
                server.wait_for_client(PATIENCE)
                with ring.write(PATIENCE) as slot:
                    slot.host[:] = frame
            result = results.get(timeout=PATIENCE)
            child.join(PATIENCE)
        self.assertEqual(child.exitcode, 0)
        return result, int(frame.sum(dtype="int64"))

    def test_spawn(self):
        read, written = self.exchange("spawn")
        self.assertEqual(read, written)

    def test_forkserver(self):
        read, written = self.exchange("forkserver")
        self.assertEqual(read, written)

    def test_fork(self):
        """The child cannot use a GPU that its parent has opened, and says so."""
        read, _ = self.exchange("fork")
        self.assertEqual(read, "Forked")

    def test_fork_with_all_in_use(self):
        done = script(
            """
            import os, warnings, numpy, gpumap
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            buffer = gpumap.empty(100)
            ring = gpumap.Ring(4, shape=10)
            slot = ring.write()
            slot.__enter__()
            slot.host[:] = 5
            child = os.fork()
            if child == 0:
                failures = 0
                for use in (lambda: buffer.host, buffer.numpy, lambda: gpumap.empty(1), buffer.__dlpack__,
                            lambda: slot.__exit__(None, None, None), lambda: ring.write().__enter__()):
                    try:
                        use()
                    except gpumap.errors.Forked as error:
                        assert "spawn" in str(error) or "parent" in str(error), error
                    else:
                        failures += 1
                del buffer, slot, ring
                os._exit(failures)
            assert os.waitpid(child, 0)[1] == 0, "in the child"
            slot.__exit__(None, None, None)
            with ring.read(0) as frame:
                assert numpy.from_dlpack(frame).sum() == 50
            buffer.host[:] = 3
            assert buffer.numpy().sum() == 300
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_producer_that_dies_while_a_tensor_is_held(self):
        producer = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(
                """
                import sys, time, gpumap
                ring = gpumap.Ring(6, shape=(1000, 100))
                server = gpumap.serve(ring, sys.argv[1])
                server.wait_for_client(60)
                with ring.write() as slot:
                    slot.host[:] = 9
                time.sleep(600)
                """), self.path]
        )  # fmt: skip
        try:
            ring = gpumap.connect(self.path, PATIENCE)
            with ring.read(PATIENCE) as frame:
                tensor = numpy.from_dlpack(frame)
            producer.send_signal(signal.SIGKILL)
            producer.wait(PATIENCE)
            with self.assertRaises(errors.Closed):
                ring.read(PATIENCE).__enter__()
            self.assertEqual(int(tensor.sum()), 900_000)
            ring.close()
            self.assertEqual(int(tensor.sum()), 900_000)
        finally:
            producer.kill()
            producer.wait(PATIENCE)


class Exit(unittest.TestCase):
    def test_with_everything_out(self):
        """The interpreter ends while slots, tensors, a server and a waiting thread are there."""
        with tempfile.TemporaryDirectory() as folder:
            done = script(
                """
                import sys, threading, numpy, gpumap
                buffer = gpumap.empty(1000)
                view, capsule = buffer.host, buffer.__dlpack__()
                ring = gpumap.Ring(4, shape=10)
                slot = ring.write()
                slot.__enter__()
                with ring.write():
                    pass
                frame = ring.read()
                frame.__enter__()
                tensor = numpy.from_dlpack(frame)
                served = gpumap.Ring(6, shape=10)
                server = gpumap.serve(served, sys.argv[1])
                reader = gpumap.connect(sys.argv[1], 60)
                waiting = threading.Thread(target=lambda: reader.read().__enter__(), daemon=True)
                waiting.start()
                kernel = gpumap.Kernel(builtin="identity")
                out = kernel(buffer)
                cycle = [ring, slot, frame, tensor]
                cycle.append(cycle)
                """,
                Path(folder) / "ring",
            )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_while_threads_read(self):
        """Python ends a thread that comes back to it then by unwinding its stack, through the module's frames."""
        done = script(
            """
            import threading, time, gpumap
            ring = gpumap.Ring(4, shape=64)
            began = threading.Barrier(9)

            def read():
                began.wait()
                while True:
                    try:
                        ring.read(0.0005).__enter__()
                    except gpumap.errors.Timeout:
                        pass

            for _ in range(8):
                threading.Thread(target=read, daemon=True).start()
            began.wait()
            time.sleep(0.05)
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_by_an_exception_and_by_sys_exit(self):
        for last, status in (("1 / 0", 1), ("sys.exit(5)", 5)):
            done = script(f"import sys, gpumap\nwith gpumap.Ring(4, shape=10).write() as slot:\n    {last}")
            self.assertEqual(done.returncode, status, done.stderr)

    def test_ctrl_c_ends_a_wait(self):
        process = subprocess.Popen(
            [sys.executable, "-c", "import gpumap\nring = gpumap.Ring(2, 10)\nprint('waits', flush=True)\n"
             "ring.read().__enter__()"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.assertEqual(process.stdout.readline(), "waits\n")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE)
        self.assertIn("KeyboardInterrupt", stderr)


class Import(unittest.TestCase):
    def test_no_driver_is_opened(self):
        """Importing and help need none; what needs one says so."""
        done = script(
            """
            import gpumap
            maps = open("/proc/self/maps").read()
            assert "libcuda" not in maps and "libvulkan" not in maps and "gstreamer" not in maps, maps
            assert "numpy" not in __import__("sys").modules
            try:
                gpumap.empty(1)
            except gpumap.errors.NoDriver as error:
                print(error)
            """,
            env={**os.environ, "VK_DRIVER_FILES": "/nowhere", "VK_ICD_FILENAMES": "/nowhere", "GPUMAP_VALIDATION": "0"},
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotEqual(done.stdout, "")

    def test_without_numpy(self):
        done = script(
            """
            import sys
            sys.modules["numpy"] = None  # importing it fails
            import gpumap
            buffer = gpumap.empty((4, 6), "uint16")
            view = buffer.host
            assert isinstance(view, memoryview) and view.shape == (4, 6) and view.format == "H", view
            view[3, 5] = 0x1234
            buffer.write(bytes(range(48)))
            assert buffer.tobytes() == bytes(range(48)) and view[0, 1] == 0x0302
            ring = gpumap.Ring(2, shape=5)
            with ring.write() as slot:
                slot.host[:] = b"hello"
            with ring.read() as frame:
                assert frame.tobytes() == b"hello"
                try:
                    frame.numpy()
                    raise SystemExit("numpy() without NumPy")
                except ImportError:
                    pass
            """
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_commands(self):
        def run(*arguments, **more):
            return subprocess.run(
                [sys.executable, "-m", "gpumap", *arguments], capture_output=True, text=True, timeout=PATIENCE,
                check=False, env={**os.environ, **more},
            )  # fmt: skip

        info = run("info")
        self.assertEqual((info.returncode, info.stderr), (0, ""))
        self.assertIn(gpumap.devices()[0]["name"], info.stdout)
        if all(device["cuda_ordinal"] < 0 for device in gpumap.devices()):
            none = run("info", VK_DRIVER_FILES="/nowhere", VK_ICD_FILENAMES="/nowhere")
            self.assertEqual(none.returncode, 1)
            self.assertRegex(none.stderr, r"^no GPU: Vulkan: .*install.*CUDA: .*install.*\n$")
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run("plugin-path", GST_PLUGIN_PATH=folder).stdout.strip() == folder, False)
            (Path(folder) / "libgstgpumap.so").touch()
            self.assertEqual(run("plugin-path", GST_PLUGIN_PATH=f"/nowhere:{folder}").stdout, folder + "\n")
            program = Path(folder) / "gpumap-top"
            program.write_text('#!/bin/sh\necho "top $@"\n')
            program.chmod(0o755)
            path = f"{folder}:{os.environ['PATH']}"
            if (Path(sysconfig.get_path("scripts")) / "gpumap-top").is_file():  # installed with the package: this one
                self.assertIn("--once", run("top", "--help", PATH=path).stdout)
            else:
                self.assertEqual(run("top", "--once", "-x", PATH=path).stdout, "top --once -x\n")
        self.assertEqual(run("nonsense").returncode, 2)
        self.assertEqual(run("info", "--nonsense").returncode, 2)


class Rounds(unittest.TestCase):
    def test_memory_does_not_grow(self):
        ring = gpumap.Ring(4, shape=(32, 128))
        pool = gpumap.Pool(4096)
        frame = random_array((32, 128))

        def rounds(count):
            for index in range(count):
                with ring.write() as slot:
                    slot.host[:] = frame
                with ring.read() as got:
                    numpy.from_dlpack(got)
                pool.take().host[0] = index % 256
                if index % 97 == 0:
                    got = None
                    slot = None
                    with self.assertRaises(ZeroDivisionError), ring.write() as slot:
                        raise ZeroDivisionError
                    with self.assertRaises(errors.Timeout):
                        ring.read(0).__enter__()

        def resident():
            return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

        rounds(ROUNDS // 4)
        before, files = resident(), len(os.listdir("/proc/self/fd"))
        rounds(ROUNDS)
        self.assertLess(resident() - before, 2 << 20)
        self.assertEqual(len(os.listdir("/proc/self/fd")), files)
        with ring.write(0) as slot:
            slot.host[:] = frame
        with ring.read(0) as got:
            self.assertTrue(same(got.numpy(), frame))


if __name__ == "__main__":
    unittest.main()
