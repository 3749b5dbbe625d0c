"""Data sets of the laboratory: found by name, decoded once, augmented on the device."""

from fastfill.lab.data.sets import DATASETS, load, parse
from fastfill.lab.data.types import Images, ImageSet

__all__ = ["DATASETS", "ImageSet", "Images", "load", "parse"]
