"""Maps from old to new vectors: losses, training, calibration, the saved artefact."""
