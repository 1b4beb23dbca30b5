"""Speed, as ratios against peers measured in the same run, as machines are shared. `make bench` runs all benchmarks."""
