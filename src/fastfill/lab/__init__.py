"""The laboratory: every system of the paper, trained and compared for real."""
