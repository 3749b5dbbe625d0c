"""A training run that can be killed and goes on: its tensors in one safetensors file."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from fastfill.errors import FileError
from fastfill.features import replacing


class Checkpoint:
    """Saves and restores, in place, the tensors of a run and the number of epochs done."""

    def __init__(self, path: Path | None, tensors: dict[str, Tensor]) -> None:
        self.path, self.tensors = path, tensors

    def load(self) -> int:
        """Restore what was saved, if anything was; the number of epochs done."""
        if self.path is None or not self.path.is_file():
            return 0
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self.path, framework="pt") as file:
                facts = file.metadata() or {}
                shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
                if shapes != {name: tuple(value.shape) for name, value in self.tensors.items()}:
                    raise FileError(f"{self.path}: is a checkpoint of another network. Delete it.")
                for name, target in self.tensors.items():
                    target.data.copy_(file.get_tensor(name))
        except SafetensorError as error:
            raise FileError(f"{self.path}: damaged ({error}). Delete it to start again.") from error
        return int(facts["epochs"])

    def save(self, epochs: int) -> None:
        """Write the state after so many epochs, whole or not at all."""
        if self.path is None:
            return
        from safetensors.torch import save_file

        self.path.parent.mkdir(parents=True, exist_ok=True)
        state = {name: value.detach().cpu().contiguous() for name, value in self.tensors.items()}
        with replacing(self.path) as draft:
            save_file(state, draft, {"epochs": str(epochs)})

    def remove(self) -> None:
        """The run is done; its result is kept elsewhere."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
