"""`sync=` makes one mini-batch of those of all processes."""

import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("ddp_worker.py")


def test_gradients_equal_those_of_one_process():
    """Of two processes, with even and uneven parts, and an empty one; nobody hangs."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    result = subprocess.run([sys.executable, *launch, str(WORKER)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stderr.count("passed") == 2
