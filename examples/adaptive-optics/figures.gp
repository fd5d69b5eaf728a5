# SPDX-License-Identifier: MIT
#
# How long frames took, and how the wavefront was held.
#
#   gnuplot -c figures.gp FOLDER MODES
#
# FOLDER has a latency-MODE.txt ("us frames" a line) for each of MODES ("launch resident"), and wavefront.txt ("frame air
# residual" a line, in nm), and gets latency.png and wavefront.png.
set terminal png size 1000,500
set grid
set logscale xy

set output ARG1."/latency.png"
set title "time of a frame: last pixel stored to commands in the CPU's memory"
set xlabel "us"
set ylabel "frames"
set yrange [0.5:*]
# A column is 2% of a time wide.
set boxwidth 1 relative
set style fill transparent solid 0.6 noborder
plot for [mode in ARG2] ARG1."/latency-".mode.".txt" using 1:2:($1*0.02) with boxes title mode

set output ARG1."/wavefront.png"
set title "the wavefront, frame by frame"
set xlabel "frame"
set ylabel "nm RMS"
set yrange [*:*]
set key below
plot ARG1."/wavefront.txt" using 1:2 with lines linewidth 2 title "with a flat mirror", \
     ARG1."/wavefront.txt" using 1:3 with lines linewidth 2 title "with the loop closed"
