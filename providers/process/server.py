"""PyPI's proxy.py as a single process. Run by its path; takes proxy.py's own flags.

Its command line always forks an acceptor, which outlives a main process that is killed and keeps the port. Here the
acceptor is the main process: half the memory, and dead means dead.
"""

import multiprocessing
import os
import sys
from multiprocessing.reduction import send_handle

from proxy.common.flag import FlagParser
from proxy.core.acceptor import Acceptor
from proxy.core.listener import ListenerPool

FLAGS = [
    "--threaded",  # in proxy.py's event loop a target that is slow to connect stalls all others
    *("--timeout", "120"),  # seconds without traffic; its default, 10, cuts off targets that take longer to answer
    *("--num-acceptors", "1", "--num-workers", "1"),
    *("--log-level", "WARNING"),
]


def main(arguments: list[str]) -> None:
    flags = FlagParser.initialize([*FLAGS, *arguments])
    listeners = ListenerPool(flags=flags)
    listeners.setup()
    ours, acceptors = multiprocessing.Pipe()
    acceptor = Acceptor(
        idd=0,
        fd_queue=acceptors,
        flags=flags,
        lock=multiprocessing.Lock(),
        executor_queues=[],
        executor_pids=[],
        executor_locks=[],
    )
    ours.send(len(listeners.pool))
    for listener in listeners.pool:
        descriptor = listener.fileno()
        assert descriptor is not None
        send_handle(ours, descriptor, os.getpid())
    acceptor.run()


if __name__ == "__main__":
    main(sys.argv[1:])
