"""One file per kind of encoder; each has `open_encoder(spec)`."""
