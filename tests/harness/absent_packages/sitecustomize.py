"""With this folder on PYTHONPATH, Python begins as where ABSENT_PACKAGES are not installed."""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

ABSENT = frozenset(os.environ.get("ABSENT_PACKAGES", "").split())


class WithoutAbsent:
    """Finds every module of the path but those of the absent packages."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """None for an absent one, as if it were not there; importing it then fails as it should."""
        if name.partition(".")[0] in ABSENT:
            return None
        return PathFinder.find_spec(name, path, target)

    invalidate_caches = staticmethod(PathFinder.invalidate_caches)
    find_distributions = staticmethod(PathFinder.find_distributions)  # for importlib.metadata


sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutAbsent
