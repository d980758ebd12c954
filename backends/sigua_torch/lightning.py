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

from sigua_torch.loss import SIGUALoss


class SetEpoch(Callback):
    """Calls `set_epoch` on every `SIGUALoss` in the LightningModule as each training epoch begins.

        trainer = Trainer(max_epochs=60, callbacks=[SetEpoch()])

    A criterion that counts by itself (`steps_per_epoch=`) is left alone. A resumed run goes on at
    the epoch at which its trainer does. Validation and test have the plain loss, because Lightning
    puts the module into `eval`.
    """

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Tell the trainer's epoch, which counts from 0."""
        for module in pl_module.modules():
            if isinstance(module, SIGUALoss) and module.numbers.steps_per_epoch is None:
                module.set_epoch(trainer.current_epoch)
