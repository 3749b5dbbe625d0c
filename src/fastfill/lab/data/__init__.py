"""Data sets of the laboratory: looked up by name, decoded once, augmented on the device."""

from fastfill.lab.data.datasets import DATASETS, load, parse
from fastfill.lab.data.image_sets import Images, ImageSet

__all__ = ["DATASETS", "ImageSet", "Images", "load", "parse"]
