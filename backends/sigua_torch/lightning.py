"""Lightning tells the epoch: `from sigua_torch.lightning import SetEpoch`.

Imported by nothing else here, for it needs `lightning` or `pytorch_lightning`, whichever is there.
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError as error:
    if error.name != "lightning":
        raise
    try:
        from pytorch_lightning.callbacks import Callback
    except ModuleNotFoundError as other:
        if other.name != "pytorch_lightning":
            raise
        message = (
            "sigua_torch.lightning needs Lightning, which is not installed: pip install lightning"
        )
        raise ModuleNotFoundError(message, name="lightning") from error

from sigua import checks
from sigua_torch.loss import SIGUALoss


class SetEpoch(Callback):
    """Calls `set_epoch` on every `SIGUALoss` in the LightningModule before each training step.

        trainer = Trainer(max_epochs=60, callbacks=[SetEpoch()])

    The epoch is the trainer's, and the share of its mini-batches that are done: a run of a single
    epoch has a warm-up, too, if the method's is shorter. Where the length of a stream is not known,
    only whole epochs are; `steps_per_epoch` then says how many mini-batches to take for one.

    A criterion that counts by itself (`SIGUALoss(..., steps_per_epoch=)`) is left alone. A resumed
    run goes on at the epoch at which its trainer does. Validation and test have the plain loss,
    because Lightning puts the module into `eval`.

    Args:
        steps_per_epoch: mini-batches to count as an epoch, instead of the trainer's own epochs.

    Raises:
        ValueError: `steps_per_epoch` is no whole number of at least 1.
    """

    def __init__(self, steps_per_epoch: int | None = None) -> None:
        if steps_per_epoch is not None:
            checks.whole("steps_per_epoch", steps_per_epoch, 1, "give mini-batches, such as 1000")
        self.steps_per_epoch = steps_per_epoch

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Tell the epoch, which counts from 0."""
        if self.steps_per_epoch is not None:
            epoch = trainer.fit_loop.epoch_loop.total_batch_idx / self.steps_per_epoch
        else:  # infinity if nobody knows, which adds nothing
            epoch = trainer.current_epoch + batch_idx / trainer.num_training_batches
        for module in pl_module.modules():
            if isinstance(module, SIGUALoss) and module.numbers.steps_per_epoch is None:
                module.set_epoch(epoch)
