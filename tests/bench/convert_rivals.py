#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `convert` of 1080p NV12 to a 224x224 planar float32 picture takes beside PyTorch and CuPy.

Needs a CUDA GPU, PyTorch, and CuPy for its part. Run kernel-bench on the same GPU, right before or after. Each way
is timed as there: launches back to back, input that rotates over more than the caches hold, until the CPU sees the
last one done. PyTorch runs as written, and as a CUDA graph, which spares it the launches' cost on the CPU.

  convert_rivals.py [--json FILE]
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

WIDTH, HEIGHT, SIZE = 1920, 1080, 224
COPIES, LAUNCHES, BATCHES = 64, 50, 50  # 64 frames of 3.1 MB: more than any level-2 cache


def to_rgb(y, u, v):
    """BT.709, limited range, planes of values 0 to 255; RGB in 0 to 1."""
    y = (y - 16) * (1 / 219)
    u = (u - 128) * (1 / 224)
    v = (v - 128) * (1 / 224)
    r = y + 1.5748 * v
    g = y - 0.187324 * u - 0.468124 * v
    b = y + 1.8556 * u
    return torch.cat((r, g, b), 1).clamp(0, 1)


def shrink(planes):
    return F.interpolate(planes, (SIZE, SIZE), mode="bilinear", antialias=True, align_corners=False)


def planes_of(frame):
    luma = frame[: WIDTH * HEIGHT].view(1, 1, HEIGHT, WIDTH).float()
    chroma = frame[WIDTH * HEIGHT :].view(1, HEIGHT // 2, WIDTH // 2, 2).permute(0, 3, 1, 2).float()
    return luma, chroma


def convert_then_shrink(frame):
    luma, chroma = planes_of(frame)
    chroma = F.interpolate(chroma, (HEIGHT, WIDTH), mode="bilinear", align_corners=False)
    return shrink(to_rgb(luma, chroma[:, :1], chroma[:, 1:]))


def shrink_then_convert(frame):
    luma, chroma = planes_of(frame)
    chroma = shrink(chroma)
    return to_rgb(shrink(luma), chroma[:, :1], chroma[:, 1:])


def timed(work):
    """Median us of one call; `work` takes the number of the frame."""

    def batch():
        began = time.perf_counter()
        for i in range(LAUNCHES):
            work(i % COPIES)
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / LAUNCHES * 1e6

    batch()
    return statistics.median(batch() for _ in range(BATCHES))


def graphs_of(work, frames):
    """A CUDA graph for each frame."""
    work(frames[0])
    graphs = []
    for frame in frames:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            graph.kept = work(frame)
        graphs.append(graph)
    return graphs


def cupy_zoom(frames):
    """Linear interpolation of the luma alone, without a filter: what cupyx has at hand. Less than asked for."""
    import cupy
    from cupyx.scipy.ndimage import zoom

    luma = [cupy.asarray(frame[: WIDTH * HEIGHT].view(HEIGHT, WIDTH)).astype(cupy.float32) for frame in frames]
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    with stream:
        return timed(lambda i: zoom(luma[i], (SIZE / HEIGHT, SIZE / WIDTH), order=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures there")
    options = parser.parse_args()
    torch.manual_seed(7)
    frames = [torch.randint(0, 256, (WIDTH * HEIGHT * 3 // 2,), dtype=torch.uint8, device="cuda") for _ in range(COPIES)]
    rows = {}
    for name, work in (
        ("PyTorch, to RGB, then to 224x224", convert_then_shrink),
        ("PyTorch, to 224x224, then to RGB", shrink_then_convert),
    ):
        rows[name] = timed(lambda i, work=work: work(frames[i]))
        graphs = graphs_of(work, frames)
        rows[name + ", CUDA graph"] = timed(lambda i, graphs=graphs: graphs[i].replay())
    try:
        rows["CuPy, luma alone, no filter"] = cupy_zoom(frames)
    except ImportError as error:
        print(f"CuPy is left out: {error}")
    for name, us in rows.items():
        print(f"{name:<48} {us:10.2f} us")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "us": rows}, file, indent=2)


if __name__ == "__main__":
    main()
