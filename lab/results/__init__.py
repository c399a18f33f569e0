"""Results as data: JSON files with raw samples, and the pages, plots and numbers that are generated from them.

An Experiment (experiment.py) says what is measured, and makes texts and plots from samples. docs/results/data/NAME.json
has its samples with the commit, machine and load of each (store.py). Pages have marked spans, which pages.py fills:

    <!-- result steps.wins -->...<!-- end -->

A Combination (front.py, summaries.py) makes them from the samples of several experiments, or of one whose own tables are
among its sources.

lab/reproduce.sh (reproduce.py) measures what is missing or stale. A sample is stale when the code of the files that its
experiment names has changed since; changes of comments do not count. docs/hacking.md, "Results", has the rules.
"""
