"""Becomes the proxy server, once its parent has recorded it. Run by its path, with the standard library alone.

The parent reads the pid from our output and answers with one byte on our input. End of input instead means that the
parent died: then nothing starts. What follows the pid on the output is the reason why the server could not be started;
end of output without one means that it did.
"""

import os
import signal
import sys


def main(command: list[str]) -> None:
    if os.fork():
        # The server becomes a child of init, which reaps it when it dies: no zombie is left to a long-lived parent.
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    report = os.dup(1)
    os.write(report, f"{os.getpid()}\n".encode())
    if not os.read(0, 1):
        os._exit(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the words of a command need no shell
    except OSError as error:
        os.write(report, str(error.strerror).encode())
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
