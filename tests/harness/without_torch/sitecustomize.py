"""With this folder on PYTHONPATH, Python begins as where torch is not installed."""

import sys
from importlib.machinery import ModuleSpec, PathFinder


class WithoutTorch:
    """Finds every module of the path but torch's."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """None for torch, as if it were not there; `import torch` then fails as it should."""
        if name.partition(".")[0] == "torch":
            return None
        return PathFinder.find_spec(name, path, target)

    invalidate_caches = staticmethod(PathFinder.invalidate_caches)
    find_distributions = staticmethod(PathFinder.find_distributions)  # for importlib.metadata


sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutTorch
