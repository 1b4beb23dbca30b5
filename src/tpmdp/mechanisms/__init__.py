"""The mechanisms that experiments compare: the plans of this package (G, W) and every baseline of the paper."""
