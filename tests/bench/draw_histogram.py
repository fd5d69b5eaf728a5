#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""draw_histogram.py FIRST_LIGHT.json OUT.svg|png [--kernel identity] [--paths "pipeline;pipeline, resident;rival"]:
how long frames took, from what first-light-bench wrote, by gnuplot. Several JSON files of one host may be given."""
import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys

NAMES = {"pipeline": "gpumap, launched", "pipeline, resident": "gpumap, resident", "rival": "{rival} and gpumapkernel"}
WIDTH = 1.02  # of a column: 2% of a time


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def columns(histogram):
    """Shares of the frames by time, in columns of one width on a logarithmic axis."""
    frames = sum(count for _, count in histogram)
    made = {}
    for time, count in histogram:
        column = round(math.log(max(time, 0.001)) / math.log(WIDTH))
        made[column] = made.get(column, 0) + count
    return [(WIDTH**column, count / frames) for column, count in sorted(made.items())]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--kernel", default="identity")
    parser.add_argument("--paths", default="rival;pipeline;pipeline, resident")
    options = parser.parse_args()
    if options.out.suffix not in (".svg", ".png"):
        parser.error(f"{options.out}: name an .svg or a .png")
    if not shutil.which("gnuplot"):
        sys.exit("draw_histogram.py: no gnuplot: sudo apt-get install gnuplot-nox")

    reports = [json.loads(file.read_text()) for file in options.reports]
    blocks, plots, top = "", [], 0
    for path in options.paths.split(";"):
        # Of several files the one with the most frames.
        found = [(report["frames"], report, result) for report in reports for result in report["results"]
                 if result["path"] == path and result["kernel"] == options.kernel]
        if not found:
            continue
        _, report, result = max(found, key=lambda one: one[0])
        name = NAMES.get(path, path).format(rival=report["rival"])
        title = (f"{name}: P50 {result['median_us']:.1f} us, P99.9 {result['p999_us']:.1f} "
                 f"({report['frames']:,} frames)")
        points = columns(result["histogram"])
        top = max(top, result["max_us"])
        blocks += f"$data{len(plots)} << EOD\n" + "".join(f"{us:.5g} {share:.4g}\n" for us, share in points) + "EOD\n"
        plots.append(f"$data{len(plots)} using 1:2:($1*{WIDTH - 1:.2f}) with boxes title {quoted(title)}")
    if not plots:
        sys.exit(f"draw_histogram.py: no path of {options.paths} with kernel {options.kernel} in {options.reports}")

    report = reports[0]
    frame = report["width"] * report["height"] * 3 // 2
    terminal = ("svg size 1000,520 noenhanced font 'sans-serif,13' background '#ffffff'" if options.out.suffix == ".svg"
                else "pngcairo size 1000,520 noenhanced font 'sans-serif,11'")
    software = " (software: no figures of a GPU)" if report["software"] else ""
    script = f"""set terminal {terminal}
set output {quoted(str(options.out))}
set title {quoted(f"{frame:,} bytes, last store to kernel seen done: {report['device']}{software}")}
set xlabel 'us'
set ylabel 'share of the frames, in columns 2% wide'
set grid
set logscale xy
set format y '%g'
set key above left Left reverse
set style fill transparent solid 0.55 noborder
{blocks}plot {", ".join(plots)}
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


if __name__ == "__main__":
    main()
