"""SIGUA for PyTorch: swap `nn.CrossEntropyLoss` for `SIGUALoss` and keep the training loop."""

try:
    import torch as _torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    message = "sigua_torch needs PyTorch, which is not installed: pip install 'sigua[torch]'"
    raise ModuleNotFoundError(message, name="torch") from error

from sigua._method import method_from_dict as _method_from_dict
from sigua_torch import losses
from sigua_torch._pool import Pool
from sigua_torch.diagnostics import LabelHistory, SelectionMeter
from sigua_torch.functional import corrected_losses, select, two_way
from sigua_torch.loss import SIGUALoss

__all__ = ["LabelHistory", "Pool", "SIGUALoss", "SelectionMeter", "corrected_losses", "losses"]
__all__ += ["select", "two_way"]

# A method in a checkpoint, as Lightning's save_hyperparameters puts there, is data.
_torch.serialization.add_safe_globals([_method_from_dict])
