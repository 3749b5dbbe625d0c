"""One file per store and per encoder; `fastfill.wiring` is the only door to them."""
