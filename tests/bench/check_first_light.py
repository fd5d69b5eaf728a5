#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the benchmark briefly, as given on the command line, and read what it wrote: does it run, and is it whole?"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "first-light.json"
    subprocess.run(sys.argv[1:] + ["--json", file], check=True)
    report = json.loads(file.read_text())
    if shutil.which("gnuplot"):
        for ending in ("svg", "png"):
            drawn = pathlib.Path(folder) / f"histogram.{ending}"
            draw = pathlib.Path(__file__).parent / "draw_histogram.py"
            subprocess.run([sys.executable, draw, file, drawn, "--kernel", "identity"], check=True)
            assert drawn.stat().st_size > 4000, drawn.read_bytes()

# A path that fails is told, and the others are measured.
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "failed.json"
    failing = [sys.argv[1], "--frames", "20", "--warmup", "5", "--json", file, "--rival", "identity", "--kernels",
               "identity", "--paths", "rival;pipeline"]
    assert subprocess.run(failing).returncode == 1
    failed = json.loads(file.read_text())
    assert [one["what"] for one in failed["failures"]] == ["identity, rival"], failed["failures"]
    assert [one["path"] for one in failed["results"]] == ["pipeline"], failed["results"]

paths = {"bare, one thread", "bare, two threads", "pipeline", "pipeline, stamps", "rival"}
cuda = report["backend"] == "cuda"
if cuda:
    paths |= {"pipeline, resident", "pipeline, two resident"}
for kernel in ("nothing", "identity"):
    results = {result["path"]: result for result in report["results"] if result["kernel"] == kernel}
    assert results.keys() == paths, f"{kernel}: {sorted(results)}"
    for path, result in results.items():
        percentiles = [result[name] for name in ("min_us", "median_us", "p90_us", "p99_us", "p999_us", "max_us")]
        assert 0 < percentiles[0] and percentiles == sorted(percentiles), (path, result)
        assert all(stage["median_us"] >= 0 for stage in result["stages"]), (path, result)
        times = [time for time, _ in result["histogram"]]
        assert sum(count for _, count in result["histogram"]) == report["frames"], (path, result)
        assert times == sorted(times) and times[0] >= result["min_us"] and times[-1] <= result["max_us"], (path, result)
    sent = report["frames"] + report["warmup"]
    assert results["pipeline"]["zero_copy_frames"] == sent, results["pipeline"]
    # The parts make the whole, by their medians roughly.
    for path in ("pipeline", "rival"):
        parts = [stage["median_us"] for stage in results[path]["stages"] if not stage["stage"].startswith("(")]
        assert max(parts) <= results[path]["max_us"], results[path]
assert len(report["differences"]) == 4, report["differences"]
assert len(report["ratios"]) == (4 if cuda else 2) and all(row["median"] > 0 for row in report["ratios"]), report
assert len(report["rates"]) == (8 if cuda else 4) and all(row["frames_per_s"] > 0 for row in report["rates"]), report
assert report["device"] and report["cpu"], report
