#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What examples/waterfall/run --generated leaves: the carriers where they should be, and axes that say so.

    check_waterfall.py FOLDER AXES

FOLDER has rows.rgba and waterfall.png; AXES is axes.gp, which drew the latter."""
import pathlib
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree

BINS, ROWS, RATE = 512, 585, 2_000_000


class Picture:
    """The pixels of a PNG, as (red, green, blue)."""

    def __init__(self, file):
        self.width, self.height = struct.unpack(">II", file.read_bytes()[16:24])
        decoded = file.with_suffix(".rgb")
        subprocess.run(["gst-launch-1.0", "-q", "filesrc", f"location={file}", "!", "pngdec", "!", "videoconvert", "!",
                        "video/x-raw,format=RGB", "!", "filesink", f"location={decoded}"], check=True)
        self.pixels = decoded.read_bytes()
        self.stride = len(self.pixels) // self.height

    def at(self, x, y):
        start = y * self.stride + 3 * x
        return tuple(self.pixels[start:start + 3])

    def dark(self, x, y):
        return sum(self.at(x, y)) < 100


def near(numbers, others, by=1):
    return len(numbers) == len(others) and all(abs(a - b) <= by for a, b in zip(numbers, others))


def painted(rows, x, y):
    start = 4 * (BINS * y + x)
    return rows[start:start + 3]


def check_rows(rows):
    """Columns: 256 is the middle, one is 2 MHz / 512. Rows: the second carrier goes on and off every 10 ms."""
    def seen(column):
        return sum(sum(painted(rows, column, row)) > 300 for row in range(ROWS))
    assert seen(256 + 128) == ROWS, "no carrier at +500 kHz"
    assert 280 < seen(256 - 64) < 340, "no carrier at -250 kHz that comes and goes"
    assert seen(256 + 140) < 30, "a carrier where there is none"


def check_picture(picture, rows):
    # The frame around the spectra: the lowest line that is as long as there are bins.
    def line(y):
        return [x for x in range(picture.width) if picture.dark(x, y)]
    bottom = max(y for y in range(picture.height) if len(line(y)) > BINS)
    right = max(x for x in line(bottom - ROWS) if x < 100 + BINS + 5)
    left, top = right - BINS, bottom - ROWS
    assert near([left, top], [100, 40], 2), (left, top)

    # Four numbers below, -1000 to 500 kHz, eight beside it, 0 to 0.14 s: a small line points to each of them.
    below = [x for x in line(bottom + 4) if x <= right]
    assert near(below, [left + BINS * (0.5 + kilohertz * 1e3 / RATE) for kilohertz in (-1000, -500, 0, 500)], 1.5), below
    beside = [y for y in range(top, bottom) if picture.dark(left - 4, y)]
    assert near(beside, [top + 0.02 * i * RATE / BINS for i in range(8)], 1.5), beside

    # A pixel is what the kernel painted.
    for y in range(5, ROWS - 5, 20):
        for x in range(5, BINS - 5):
            assert near(picture.at(left + x, top + y), painted(rows, x, y)), (x, y)
    # Above the small line of 500 kHz lies a carrier, and none beside it. Where the third one sweeps by is no matter.
    for aside, least, most in (0, 550, ROWS), (-4, 0, 35), (4, 0, 35):
        bright = sum(sum(picture.at(below[3] + aside, top + y)) > 600 for y in range(ROWS))
        assert least <= bright <= most, (aside, bright)

    # The bar to the right: white at the top, black at the bottom, the kernel's colours between.
    bar = right + 30
    for part, colour in (0.995, (255, 255, 255)), (0.75, (255, 178, 26)), (0.5, (217, 51, 76)), (0.25, (76, 0, 115)):
        drawn = picture.at(bar, round(bottom - part * ROWS))
        assert near(drawn, colour, 8), (part, drawn)


def labels(axes, folder, centre):
    """All that is written in the picture, sorted."""
    file = folder / "labels.svg"
    subprocess.run(["gnuplot", "-c", axes, folder / "rows.rgba", file, str(BINS), str(ROWS), str(RATE), str(BINS),
                    centre, "-70", "-20"], check=True)
    return sorted(re.sub(r"\s+", " ", "".join(text.itertext())).strip()
                  for text in xml.etree.ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}text"))


def check_labels(axes, folder):
    seconds = ["0"] + [f"{i / 50:g}" for i in range(1, 8)]
    bar = [str(decibels) for decibels in range(-70, -19, 10)]
    for centre, numbers, unit in (("", ["-1000", "-500", "0", "500"], "kHz from the centre"),
                                  ("433.92", ["433", "433.5", "434", "434.5"], "MHz")):
        expected = seconds + ["s"] + numbers + [unit] + bar + ["dB", "spectra of a radio recording, by gpumapkernel"]
        found = labels(axes, folder, centre)
        assert found == sorted(expected), (found, expected)


def check_live(picture):
    """A line for each whole frame of 32,768 samples, the newest at the top: the sweep, column by column, tells which."""
    lines = 300_000 // 32_768
    for y in range(picture.height):
        assert (sum(picture.at(256 + 128, y)) > 600) == (y < lines), y
        if y < lines:
            middle = (lines - 1 - y + 0.5) * 32_768
            sweep = 256 + round((-900e3 + 1.7e6 * middle / 300_000) / RATE * BINS)
            beside = next(x for x in (sweep + 60, sweep - 60) if all(abs(x - carrier) > 8 for carrier in (384, 192)))
            assert sum(picture.at(sweep, y)) > 250 > sum(picture.at(beside, y)), y


def main(folder, axes):
    rows = (folder / "rows.rgba").read_bytes()
    check_rows(rows)
    check_picture(Picture(folder / "waterfall.png"), rows)
    check_labels(axes, folder)
    check_live(Picture(folder / "live.png"))


main(pathlib.Path(sys.argv[1]), sys.argv[2])
