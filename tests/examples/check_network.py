#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What examples/network/run --generated leaves: a box around each word in each frame, and none elsewhere.

    check_network.py FOLDER

FOLDER has words.txt, where the words were written, and boxes.txt and boxes-copied.txt, what the network found."""
import pathlib
import sys

FRAMES = 20


def area(box):
    return max(0, box[2] - box[0]) * max(0, box[3] - box[1])


def overlap(one, other):
    """The part of both boxes together that both share."""
    common = area([max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3])])
    return common / (area(one) + area(other) - common)


def found(file):
    """The boxes of each frame, upright: left, top, right, bottom."""
    frames = [[] for _ in range(FRAMES)]
    for line in file.read_text().splitlines():
        frame, *corners, _ = map(float, line.split())
        frames[int(frame)].append([min(corners[::2]), min(corners[1::2]), max(corners[::2]), max(corners[1::2])])
    return frames


def main(folder):
    words = [line.split() for line in (folder / "words.txt").read_text().splitlines()]
    assert len(words) == 6, words
    for name in "boxes.txt", "boxes-copied.txt":
        for frame, boxes in enumerate(found(folder / name)):
            assert len(boxes) == len(words), (name, frame, boxes, words)
            for word, *place in words:
                best = max(overlap(box, list(map(int, place))) for box in boxes)
                assert best > 0.5, (name, frame, word, best, boxes)


main(pathlib.Path(sys.argv[1]))
