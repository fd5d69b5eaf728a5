# SPDX-License-Identifier: MIT
"""Boxes around the text in pictures: a network that reads the GPU's memory where a pipeline left its input.

  network.py MODEL OUT [SOURCE]

MODEL: a text detector in ONNX (PP-OCR). OUT: the folder of the results. SOURCE: elements of a pipeline that make the
pictures; left out, a picture with words is made.
"""
import random
import statistics
import sys
import time
from pathlib import Path

import cv2
import gi
import numpy
import onnxruntime

import gpumap

gi.require_version("Gst", "1.0")
gi.require_version("GstApp", "1.0")
from gi.repository import Gst, GstApp  # noqa: E402, F401  # GstApp: try_pull_sample()

FRAMES = 20
SECONDS = 100  # that a pipeline may take to its first frame: shaders are compiled then
SIZE = 1280, 704
# Of the network's input: multiples of 32, of the picture's shape.
INPUT = 640, 352
# The bytes are blue, green, red, as OpenCV draws. Called RGB, they are the tensor's planes in this order, as the network
# was trained.
PICTURE = f"video/x-raw,format=BGR,width={SIZE[0]},height={SIZE[1]},pixel-aspect-ratio=1/1"
# In the GPU's memory, where CUDA is; else the kernel writes into the CPU's.
MEMORY = "(memory:GPUMap)" if gpumap.Device().info["cuda_ordinal"] >= 0 else ""
TENSOR = f"application/x-tensor{MEMORY},type=float32,layout=chw,channels=3,width={INPUT[0]},height={INPUT[1]}"
SINK = "appsink sync=false max-buffers=2"
TO_TENSOR = (
    f"capssetter join=true caps=video/x-raw,format=RGB ! gpumapupload ! "
    f"gpumapkernel kernel=convert params=mean=[0.5,0.5,0.5],scale=[2,2,2] ! {TENSOR}"
)
WORDS = "camera tensor kernel network picture window memory stream".split()


def make_words(out):
    """A picture with words, and a file that says where they are."""
    picture = numpy.empty((SIZE[1], SIZE[0], 3), "uint8")
    shades = numpy.linspace(160, 220, SIZE[0])[:, None] + (0, 17, 35)  # of blue, green and red, which thus differ
    picture[:] = shades.astype("uint8")
    lines = []
    for index, word in enumerate(random.sample(WORDS, 6)):
        font, scale, thick = cv2.FONT_HERSHEY_SIMPLEX, random.uniform(1.5, 2.2), random.randint(3, 5)
        (width, height), below = cv2.getTextSize(word, font, scale, thick)
        x = 640 * (index % 2) + random.randint(30, 610 - width)
        y = 234 * (index // 2) + random.randint(30 + height, 200 - below)
        colour = [random.randint(0, 90) for _ in range(3)]
        cv2.putText(picture, word, (x, y), font, scale, colour, thick, cv2.LINE_AA)
        lines.append(f"{word} {x} {y - height} {x + width} {y + below}\n")
    cv2.imwrite(str(out / "words.png"), picture)
    (out / "words.txt").write_text("".join(lines))
    return f'filesrc location="{out}/words.png" ! pngdec ! imagefreeze num-buffers={FRAMES}'


class Pipeline:
    """A pipeline and its appsinks."""

    def __init__(self, text):
        self.pipeline = Gst.parse_launch(text)

    def __enter__(self):
        self.pipeline.set_state(Gst.State.PLAYING)
        return self

    def __exit__(self, *_):
        self.pipeline.set_state(Gst.State.NULL)

    def pull(self, name):
        """The next buffer with its caps, or None at the end of the stream."""
        sink = self.pipeline.get_by_name(name)
        sample = sink.try_pull_sample(SECONDS * Gst.SECOND)
        if sample is not None:
            return sample.get_buffer(), sample.get_caps()
        error = self.pipeline.get_bus().pop_filtered(Gst.MessageType.ERROR)
        if error is not None or not sink.is_eos():
            raise SystemExit(f"network: {error.parse_error()[0].message if error else f'no frame in {SECONDS} s'}")
        return None


class Network:
    """The detector, on the GPU where ONNX Runtime can use it."""

    def __init__(self, model):
        self.ordinal = gpumap.Device().info["cuda_ordinal"]
        providers = ["CPUExecutionProvider"]
        if self.ordinal >= 0 and "CUDAExecutionProvider" in onnxruntime.get_available_providers():
            onnxruntime.preload_dlls()
            providers.insert(0, ("CUDAExecutionProvider", {"device_id": self.ordinal}))
        self.session = onnxruntime.InferenceSession(model, providers=providers)
        self.on_gpu = self.session.get_providers()[0] == "CUDAExecutionProvider"
        self.input, self.output = self.session.get_inputs()[0].name, self.session.get_outputs()[0].name
        self.binding = self.session.io_binding()

    def bind(self, tensor):
        """The input is the slot's own memory. A GPU that ONNX Runtime cannot use is left by a copy."""
        tensor.wait()
        if tensor.cuda_address and not self.on_gpu:
            return self.bind_copy(tensor.numpy())
        kind, ordinal, address = "cuda", self.ordinal, tensor.cuda_address
        if not address:
            kind, ordinal, address = "cpu", 0, numpy.from_dlpack(tensor).ctypes.data
        self.binding.bind_input(self.input, kind, ordinal, numpy.float32, (1, *tensor.shape), address)

    def bind_copy(self, array):
        """Copied to the GPU, if the network is there."""
        self.binding.bind_cpu_input(self.input, array.reshape(1, *array.shape[-3:]))

    def run(self):
        """For each pixel of the input, how likely it is one of a text."""
        self.binding.bind_output(self.output)
        self.session.run_with_iobinding(self.binding)
        return self.binding.copy_outputs_to_cpu()[0][0, 0]


def boxes_of(likely):
    """Corners in the picture, and how sure the network is: as PP-OCR does, which was trained on shrunken boxes."""
    found = []
    contours, _ = cv2.findContours((likely > 0.3).astype("uint8"), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    for contour in contours:
        centre, (width, height), angle = cv2.minAreaRect(contour)
        inside = numpy.zeros(likely.shape, "uint8")
        cv2.drawContours(inside, [contour], 0, 1, cv2.FILLED)
        sure = cv2.mean(likely, inside)[0]
        if min(width, height) >= 3 and sure >= 0.5:
            grown = 1.6 * width * height / (width + height)
            corners = cv2.boxPoints((centre, (width + grown, height + grown), angle))
            found.append((corners * (SIZE[0] / INPUT[0], SIZE[1] / INPUT[1]), sure))
    return found


def picture_of(buffer, caps):
    """The appsink's frame where it lies, in the CPU's memory."""
    return numpy.from_dlpack(gpumap.from_gst(buffer, caps)).reshape(SIZE[1], SIZE[0], 3)


class Times:
    """Milliseconds of the parts of a frame: mark() ends one."""

    PARTS = "waits for the pipeline", "to the network's input", "network", "boxes"

    def __init__(self):
        self.parts = {part: [] for part in self.PARTS}
        self.last = time.perf_counter()

    def mark(self, part=None):
        now = time.perf_counter()
        if part is not None:
            self.parts[part].append(1000 * (now - self.last))
        self.last = now

    def medians(self):
        """The first frame is left out: it has the start of the pipeline and of the network."""
        return [statistics.median(self.parts[part][1:] or self.parts[part]) for part in self.PARTS]


def on_tensors(network, source):
    """Boxes of each frame by gpumap, and the last picture and input."""
    text = f"{source} ! tee name=frames ! queue ! {SINK} name=picture  frames. ! queue ! {TO_TENSOR} ! {SINK} name=tensor"
    found, times, picture, last = [], Times(), None, None
    with Pipeline(text) as pipeline:
        while len(found) < FRAMES and (sample := pipeline.pull("tensor")):
            times.mark("waits for the pipeline")
            tensor = gpumap.from_gst(*sample)
            network.bind(tensor)
            times.mark("to the network's input")
            likely = network.run()
            times.mark("network")
            found.append(boxes_of(likely))
            times.mark("boxes")
            last = tensor.numpy()
            del tensor, sample  # the slot goes back
            picture = picture_of(*pipeline.pull("picture")).copy()
            times.mark()
    return found, times, picture, last


def on_copies(network, source):
    """The same without: OpenCV and NumPy on what appsink gives, and a copy to the GPU."""
    found, times, last = [], Times(), None
    with Pipeline(f"{source} ! {SINK} name=picture") as pipeline:
        while len(found) < FRAMES and (sample := pipeline.pull("picture")):
            times.mark("waits for the pipeline")
            small = cv2.resize(picture_of(*sample), INPUT, interpolation=cv2.INTER_AREA)
            last = numpy.ascontiguousarray(((small.astype("float32") / 255 - 0.5) / 0.5).transpose(2, 0, 1))
            network.bind_copy(last)
            times.mark("to the network's input")
            likely = network.run()
            times.mark("network")
            found.append(boxes_of(likely))
            times.mark("boxes")
    return found, times, last


def write_boxes(path, found):
    path.write_text(
        "".join(
            f"{frame} {' '.join(f'{value:.1f}' for value in corners.ravel())} {sure:.3f}\n"
            for frame, boxes in enumerate(found)
            for corners, sure in boxes
        )
    )


def main(model, out, source=None):
    out = Path(out)
    Gst.init(None)
    network = Network(model)
    # Borders are added where the picture has another shape.
    source = f"{source or make_words(out)} ! videoconvert ! videoscale ! {PICTURE}"
    found, times, picture, tensor = on_tensors(network, source)
    if picture is None:
        raise SystemExit("network: there was no picture")
    copied, times_copied, array = on_copies(network, source)

    write_boxes(out / "boxes.txt", found)
    write_boxes(out / "boxes-copied.txt", copied)
    cv2.polylines(picture, [corners.round().astype("int32") for corners, _ in found[-1]], True, (0, 160, 0), 3)
    cv2.imwrite(str(out / "network.png"), picture)

    rows = list(zip(Times.PARTS, times.medians(), times_copied.medians()))
    summary = [
        f"{len(found)} frames on {gpumap.Device().info['name']}, network by {network.session.get_providers()[0]}",
        f"{sum(map(len, found))} boxes, {len(found[-1])} in the last frame",
        f"the network's last inputs, from -1 to 1, differ by {abs(tensor - array).mean():.4f} on average",
        f"{'ms a frame':24}{'gpumap':>10}{'appsink and copying':>22}",
        *(f"{part:24}{ours:10.2f}{theirs:22.2f}" for part, ours, theirs in rows),
        f"{'together':24}{sum(row[1] for row in rows):10.2f}{sum(row[2] for row in rows):22.2f}",
    ]
    (out / "summary.txt").write_text("\n".join(summary) + "\n")
    print("\n".join(summary))


main(*sys.argv[1:])
