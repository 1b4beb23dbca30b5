"""Speed, as ratios against peers measured in the same run: machines are shared and noisy. `make bench` runs it all."""
