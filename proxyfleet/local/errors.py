"""What the command line turns into one line and exit status 1."""


class LocalError(Exception):
    """The local deployment can't start or can't go on; the message says what to do about it."""
