"""`sync=` makes one mini-batch of those of all processes."""

from pathlib import Path

from programs import launch


def test_gradients_equal_those_of_one_process():
    """Of two processes, with even and uneven parts, and an empty one; nobody hangs."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert launch(*torchrun, Path(__file__).with_name("ddp_worker.py")).count("passed") == 2
