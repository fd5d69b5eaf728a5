# SPDX-License-Identifier: MIT
"""What gpumap costs in Python, beside what people do today: one table, each row and its rival in turns in one run.

  python3 python_bench.py [ROUNDS]

Needs gpumap on PYTHONPATH and NumPy; rivals need PyTorch with CUDA. The rows of pipelines need GStreamer with gpumap's
plugin on GST_PLUGIN_PATH, those of coreelements, app, videotestsrc and imagefreeze, and libgstgpumap-1.0.so.0 and
libgstapp-1.0.so.0 on LD_LIBRARY_PATH; PyGObject they do not need. appsink.py of tests/python lies there, or beside this.
"""
import itertools
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy

import gpumap
from gpumap import errors

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
from appsink import AppSink  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000


def median_us(rounds, *functions):
    """The medians of functions that are called in turns, after a tenth of the rounds to warm up."""
    times = [[] for _ in functions]
    for index in range(rounds + rounds // 10):
        for function, mine in zip(functions, times):
            began = time.perf_counter_ns()
            function()
            if index >= rounds // 10:
                mine.append((time.perf_counter_ns() - began) / 1000)
    return [statistics.median(mine) for mine in times]


def row(what, ours, rival=None, name=""):
    beside = f"{rival:10.2f}  {ours / rival:5.2f}  {name}" if rival else ""
    print(f"{what:44} {ours:10.2f}  {beside}")


def torch_with_cuda():
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def small_write():
    ring, frame = gpumap.Ring(8, 4096), numpy.random.default_rng().integers(0, 255, 4096, "uint8")
    plain = numpy.empty_like(frame)

    def publish():
        with ring.write(drop_oldest=True) as slot:
            slot.host[:] = frame

    def store():
        plain[:] = frame

    ours, rival = median_us(ROUNDS, publish, store)
    row("slot.host[:] = x, 4 KiB, published", ours, rival, "the same store into ordinary memory")


def large_write():
    shape = (1620, 1920)
    ring, frame = gpumap.Ring(8, shape), numpy.random.default_rng().integers(0, 255, shape, "uint8")

    def assign():
        with ring.write(drop_oldest=True) as slot:
            slot.host[:] = frame

    def write():
        with ring.write(drop_oldest=True) as slot:
            slot.write(frame)

    ours, rival = median_us(max(ROUNDS // 10, 20), write, assign)
    row("slot.write(x), 1080p NV12, published", ours, rival, "slot.host[:] = x")


def pool():
    blocks = gpumap.Pool(4096)
    ours, rival = median_us(ROUNDS, lambda: blocks.take(), lambda: gpumap.empty(4096))
    row("pool.take() of 4 KiB, and back", ours, rival, "gpumap.empty()")


def from_dlpack(torch):
    """The tensor of a slot: with the `with` around it, and alone."""
    ring, stream = gpumap.Ring(8, (1620, 1920)), torch.cuda.current_stream()
    alone = []

    def read():
        with ring.write():
            pass
        with ring.read(stream=stream) as frame:
            began = time.perf_counter_ns()
            tensor = torch.from_dlpack(frame)
            alone.append((time.perf_counter_ns() - began) / 1000)
            del tensor

    (around,) = median_us(ROUNDS, read)
    row("torch.from_dlpack(frame)", statistics.median(alone))
    row("the same with write, read and release", around)


def seen_on_the_gpu(torch):
    shape = (1620, 1920)
    ring, frame = gpumap.Ring(8, shape), numpy.random.default_rng().integers(0, 255, shape, "uint8")
    stream = torch.cuda.current_stream()

    def ours():
        with ring.write() as slot:
            slot.write(frame)
        with ring.read(stream=stream) as got:
            return int(torch.from_dlpack(got)[::64, ::64].sum())

    def theirs():
        return int(torch.from_numpy(frame).cuda()[::64, ::64].sum())

    if ours() != theirs():
        raise SystemExit("the sums differ")
    mine, rival = median_us(max(ROUNDS // 10, 20), ours, theirs)
    row("1080p NV12 to torch, a small sum seen", mine, rival, "torch.from_numpy(x).cuda() and the sum")


def take_from_link(path, taken):
    """In another process: tells when it has a tensor of each frame."""
    torch = torch_with_cuda()
    with gpumap.connect(path) as ring:
        try:
            while True:
                with ring.read(stream=torch and torch.cuda.current_stream()) as frame:
                    tensor = (torch or numpy).from_dlpack(frame)
                    taken.send(time.perf_counter_ns())
                    del tensor
        except errors.Closed:
            return


def take_from_queue(queue, taken):
    while (tensor := queue.get()) is not None:
        taken.send(time.perf_counter_ns())
        del tensor


def across(torch):
    """From NumPy to a tensor of another process, one frame in flight."""
    if torch:
        import torch.multiprocessing as processes
    else:
        processes = multiprocessing
    context = processes.get_context("spawn")
    (mine, my_end), (theirs, their_end) = context.Pipe(False), context.Pipe(False)
    queue, shape = context.Queue(), (1620, 1920)
    ring, frame = gpumap.Ring(8, shape), numpy.random.default_rng().integers(0, 255, shape, "uint8")
    times = []
    with tempfile.TemporaryDirectory() as folder, gpumap.serve(ring, folder + "/ring") as server:
        takers = [
            context.Process(target=take_from_link, args=(folder + "/ring", my_end), daemon=True),
            context.Process(target=take_from_queue, args=(queue, their_end), daemon=True),
        ]
        for taker in takers:
            taker.start()
        for end in my_end, their_end:
            end.close()  # when a process ends, recv() raises
        server.wait_for_client(60)
        for _ in range(max(ROUNDS // 10, 20)):
            began = time.perf_counter_ns()
            with ring.write() as slot:
                slot.write(frame)
            after_link, again = mine.recv(), time.perf_counter_ns()
            queue.put(torch.from_numpy(frame).cuda() if torch else frame)
            times.append(((after_link - began) / 1000, (theirs.recv() - again) / 1000))
        queue.put(None)
    for taker in takers:
        taker.join(60)
    ours, rival = map(statistics.median, zip(*times[len(times) // 10 :]))
    name = "torch.multiprocessing's queue" if torch else "multiprocessing's queue"
    row("1080p NV12 to a tensor of another process", ours, rival, name)


# One frame of 1080p, again and again: making it costs nothing.
FRAMES = "videotestsrc num-buffers=1 pattern=snow ! video/x-raw,format=NV12,width=1920,height=1080 ! imagefreeze ! "
APPSINK = "appsink name=out sync=false max-buffers=3"
THROUGH_SLOTS = FRAMES + "gpumapsink sync=false  gpumapsrc ! video/x-raw(memory:GPUMap) ! " + APPSINK


def from_gst(torch):
    times, library = [], torch or numpy
    with AppSink(THROUGH_SLOTS) as pipeline:
        for _ in range(ROUNDS + ROUNDS // 10):
            buffer = pipeline.pull()
            began = time.perf_counter_ns()
            array = gpumap.from_gst(*buffer)
            made = time.perf_counter_ns()
            tensor = library.from_dlpack(array)
            times.append(((made - began) / 1000, (time.perf_counter_ns() - began) / 1000))
            del array, tensor
    made, seen = map(statistics.median, zip(*times[ROUNDS // 10 :]))
    row("from_gst of a slot", made)
    row(f"the same, and {library.__name__}.from_dlpack", seen)


def frames_a_second(text, tensor_of):
    """How many frames a second of a pipeline become a tensor, of which every 4096th byte is added up."""
    with AppSink(text) as pipeline:
        total, frames = 0, max(ROUNDS // 5, 10)
        for index in itertools.count():
            if index == frames // 5:  # what came before is to warm up
                began = time.perf_counter()
            if index == frames // 5 + frames:
                break
            total = total + tensor_of(gpumap.from_gst(*pipeline.pull())).ravel()[::4096].sum()
        int(total)  # waits for the GPU
        return frames / (time.perf_counter() - began)


def frames_to_tensors(torch):
    def ours(array):
        return torch.from_dlpack(array) if torch else numpy.from_dlpack(array)

    def theirs(array):
        return torch.from_dlpack(array).cuda() if torch else numpy.from_dlpack(array).copy()

    pairs = [(frames_a_second(THROUGH_SLOTS, ours), frames_a_second(FRAMES + APPSINK, theirs)) for _ in range(3)]
    mine, rival = map(statistics.median, zip(*pairs))
    row("1080p by appsink to a tensor, frames/s", mine, rival, "appsink and " + (".cuda()" if torch else "a copy"))


def main():
    print(gpumap.Device().info["name"], "- median of", ROUNDS, "rounds, us")
    print(f"{'what':44} {'gpumap':>10}  {'rival':>10}  ratio")
    small_write()
    large_write()
    pool()
    torch = torch_with_cuda()
    across(torch)
    try:
        from_gst(torch)
        frames_to_tensors(torch)
    except OSError as reason:
        print("skipped:", reason)
    if torch is None:
        print("skipped: no PyTorch with CUDA")
        return
    from_dlpack(torch)
    seen_on_the_gpu(torch)


if __name__ == "__main__":
    main()
