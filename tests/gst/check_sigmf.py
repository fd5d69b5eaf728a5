#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_sigmf.py: recordings of the package sigmf of PyPI are read sample for sample, and what sigmfsink writes is valid
to that package and reads the same.

GPUMAP_SIGMF_PYTHON names a Python that has the package; without one the test is skipped.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import sigmf
    from sigmf import sigmffile
except ImportError:
    python = os.environ.pop("GPUMAP_SIGMF_PYTHON", None)
    if python is None:
        print("no package sigmf here: set GPUMAP_SIGMF_PYTHON to the Python of a venv that has it")
        sys.exit(77)
    os.execv(python, [python, *sys.argv])

SAMPLES, RATE = 5003, 2.4e6
TYPES = ["f32_le", "f32_be", "f64_le", "f64_be", "i32_le", "i32_be", "i16_le", "i16_be", "u32_le", "u32_be", "u16_le",
         "u16_be", "i8", "u8"]


def numbers(kind, count, random):
    """Random ones of a datatype, such as "i16_be", in its byte order."""
    order = ">" if kind.endswith("_be") else "<"
    code = f"{order}{kind[0]}{int(kind[1:].split('_')[0]) // 8}"
    if kind[0] == "f":
        return random.normal(size=count).astype(code)
    limits = numpy.iinfo(code)
    return random.integers(limits.min, limits.max, size=count, endpoint=True).astype(code)


def record(folder, datatype, channels, random):
    """A recording by the package; its path without the suffix."""
    base = folder / f"{datatype}_{channels}"
    count = SAMPLES * channels * (2 if datatype[0] == "c" else 1)
    numbers(datatype[1:], count, random).tofile(base.with_suffix(".sigmf-data"))
    meta = sigmf.SigMFFile(data_file=str(base.with_suffix(".sigmf-data")), global_info={
        "core:datatype": datatype, "core:sample_rate": RATE, "core:num_channels": channels, "core:author": "a test"})
    meta.add_capture(0, metadata={"core:frequency": 433.92e6, "core:datetime": "2024-05-06T07:08:09.123456Z"})
    meta.add_capture(3001, metadata={"core:frequency": 868.3e6})
    meta.add_annotation(17, length=400, metadata={"core:label": "burst", "core:freq_lower_edge": 433.9e6,
                                                  "core:freq_upper_edge": 434e6})
    meta.tofile(str(base.with_suffix(".sigmf-meta")))
    return base


def main():
    random = numpy.random.default_rng(34)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        bases = [record(folder, part + kind, channels, random) for part in "cr" for kind in TYPES for channels in (1, 3)]
        line = []
        for i, base in enumerate(bases):
            line += [f"sigmfsrc location={base}.sigmf-meta block-samples=999 ! tee name=t{i}",
                     f"t{i}. ! queue ! filesink location={base}.read",
                     f"t{i}. ! queue ! sigmfsink location={base}_made.sigmf-meta sha512=true"]
        subprocess.run(["gst-launch-1.0", "-q", *" ".join(line).split()], check=True, timeout=100)
        for base in bases:
            data = base.with_suffix(".sigmf-data").read_bytes()
            assert pathlib.Path(f"{base}.read").read_bytes() == data, base
            theirs = sigmffile.fromfile(f"{base}.sigmf-meta")
            ours = sigmffile.fromfile(f"{base}_made.sigmf-meta")  # which compares the hash
            ours.validate()
            assert numpy.array_equal(theirs.read_samples(), ours.read_samples()), base
            assert ours.get_global_field("core:sha512") == theirs.calculate_hash(), base
            for field in ("core:datatype", "core:sample_rate", "core:num_channels", "core:author"):
                assert ours.get_global_field(field) == theirs.get_global_field(field), (base, field)
            frequencies = [(one["core:sample_start"], one["core:frequency"]) for one in ours.get_captures()]
            assert frequencies == [(0, 433.92e6), (3001, 868.3e6)], (base, frequencies)
            assert ours.get_captures()[0]["core:datetime"] == "2024-05-06T07:08:09.123456000Z", base
            mark = ours.get_annotations()[0]
            assert (mark["core:sample_start"], mark["core:sample_count"], mark["core:label"]) == (17, 400, "burst"), base
        print(f"{len(bases)} recordings, sigmf {sigmf.__version__}")


main()
