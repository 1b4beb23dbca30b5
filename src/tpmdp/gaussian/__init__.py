"""The Gaussian mechanism of one party: its delta, its calibration, its composition."""
