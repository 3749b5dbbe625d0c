"""One file per claim of speed or quality; each writes its section of RESULTS.md."""
