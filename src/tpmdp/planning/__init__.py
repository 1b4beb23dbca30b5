"""From needs to the least-noise plan, its worst coalitions and the certificate that it is private and optimal."""
