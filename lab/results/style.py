"""style.py - style of plots: colours of Okabe and Ito, which colour-blind readers can tell apart, and different markers
"""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
GREY = "#7F7F7F"
COLOURS = (BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE, GREY, YELLOW)  # of lines, in this order
MARKERS = "osD^v<>Ph"

plt.rcParams.update({
    "figure.dpi": 110, "savefig.dpi": 110, "font.size": 10, "axes.grid": True, "axes.grid.which": "major",
    "grid.color": "#DDDDDD", "grid.linewidth": 0.7, "axes.spines.top": False, "axes.spines.right": False,
    "axes.axisbelow": True, "legend.frameon": False, "lines.linewidth": 1.6, "lines.markersize": 5.5,
})
