"""One package per store, all of one shape, and the encoders; `fastfill.wiring` is the door."""
