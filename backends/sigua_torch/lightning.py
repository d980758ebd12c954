"""A callback by which Lightning sets the epoch: `from sigua_torch.lightning import SetEpoch`.

No other module imports this one, because it needs `lightning` or `pytorch_lightning`.
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ModuleNotFoundError as error:
        message = "sigua_torch.lightning needs Lightning; try pip install lightning"
        raise ModuleNotFoundError(message, name="lightning") from error

from sigua import checks
from sigua_torch.loss import SIGUALoss


class SetEpoch(Callback):
    """Calls `set_epoch` on every `SIGUALoss` in the LightningModule before each training step.

        trainer = Trainer(max_epochs=60, callbacks=[SetEpoch()])

    The epoch is the trainer's, plus the share of its mini-batches that are done, so a warm-up also
    works in a run of a single epoch, if it is shorter than that. For a stream of unknown length
    only whole epochs are known; `steps_per_epoch` then says how many mini-batches make an epoch.

    A criterion that counts by itself (`SIGUALoss(..., steps_per_epoch=)`) is left alone. A resumed
    run continues at the trainer's epoch. Validation and test use the plain loss, because Lightning
    puts the module into `eval`.

    Args:
        steps_per_epoch: mini-batches to count as an epoch, instead of the trainer's own epochs.

    Raises:
        ValueError: `steps_per_epoch` is not a whole number of at least 1.
    """

    def __init__(self, steps_per_epoch: int | None = None) -> None:
        if steps_per_epoch is not None:
            checks.whole("steps_per_epoch", steps_per_epoch, 1, "try mini-batches, such as 1000")
        self.steps_per_epoch = steps_per_epoch

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Set the epoch, which counts from 0.

        Raises:
            ValueError: no criterion is a submodule of the LightningModule, or a schedule's value at
                this epoch is out of range.
        """
        criteria = [module for module in pl_module.modules() if isinstance(module, SIGUALoss)]
        if not criteria:  # a global, or one in a plain list, would stay at epoch 0
            raise ValueError(
                "SetEpoch: must find a SIGUALoss among the modules of the LightningModule, got "
                "none; try self.criterion = SIGUALoss(...) in __init__"
            )
        if self.steps_per_epoch is not None:
            epoch = trainer.fit_loop.epoch_loop.total_batch_idx / self.steps_per_epoch
        else:  # the number of mini-batches is infinity if unknown, and then adds nothing
            epoch = trainer.current_epoch + batch_idx / trainer.num_training_batches
        for criterion in criteria:
            if criterion._objective.numbers.steps_per_epoch is None:
                criterion.set_epoch(epoch)
