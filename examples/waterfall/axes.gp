# SPDX-License-Identifier: MIT
#
# The pixels that the kernel `colour` painted, in a picture with axes: frequency, time, and a bar that says how many
# decibels a colour is. A bin is a pixel wide, a row a pixel high.
#
#   gnuplot -c axes.gp PIXELS PICTURE BINS ROWS RATE HOP CENTRE FLOOR CEILING
#
# PICTURE ends in .png or .svg. RATE: samples a second; HOP: samples from one row to the next. CENTRE: of the recording,
# in MHz; where it is empty, the axis says how far from the centre a frequency is. FLOOR, CEILING: the kernel's, in dB.
picture = ARG2
bins = ARG3 + 0
rows = ARG4 + 0
rate = ARG5 + 0.0
hop = ARG6 + 0.0

if (ARG7 eq "") {
  middle = 0
  unit = 1e3
  set xlabel "kHz from the centre"
} else {
  middle = ARG7 + 0.0
  unit = 1e6
  set xlabel "MHz"
}
bin = rate / bins / unit
row = hop / rate

# In pixels. The rows of a short recording are taller, so that there is room for the numbers at the axes.
left = 100
right = 110
above = 40
below = 60
width = left + bins + right
tall = rows < 100 ? 100 : rows
height = above + tall + below
# Which terminal draws it, and in all colours: a png has 256 otherwise.
terminal = picture[strlen(picture) - 2:] eq "svg" ? "svg" : "png truecolor"
set terminal @terminal size width,height
set output picture
set lmargin at screen left / (width - 1.0)
set rmargin at screen (left + bins) / (width - 1.0)
set bmargin at screen below / (height - 1.0)
set tmargin at screen (below + tall) / (height - 1.0)

set title "spectra of a radio recording, by gpumapkernel"
set ylabel "s"
set cblabel "dB"
set tics out
set xtics format "%.8g" nomirror
set ytics nomirror
unset key
# Bin bins / 2 has the centre in its middle.
set xrange [middle - (bins / 2 + 0.5) * bin:middle + (bins / 2 - 0.5) * bin]
set yrange [rows * row:0]
# The colours of colour.comp and colour.cu.
set palette defined (0 0 0 0, 1 0.3 0 0.45, 2 0.85 0.2 0.3, 3 1 0.7 0.1, 4 1 1 1)
set cbrange [ARG8 + 0:ARG9 + 0]
# The bar belongs to a plot that has the palette: one of nothing.
plot ARG1 binary array=(bins,rows) format="%4uchar" dx=bin dy=row origin=(middle - bins / 2 * bin, row / 2) \
       using 1:2:3 with rgbimage, \
     NaN with points palette
