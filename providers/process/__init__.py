"""Real proxy servers as processes of this machine: for first runs, development and tests.

An instance is a folder, ``<state dir>/<entry>/<instance name>/``, with its ``identity.json``, and one detached process.

- Nothing runs unrecorded. A launcher makes the process, which waits; the driver writes who it is (owner, pid, start
  time, address), fsyncs, and only then lets the process become the proxy server. A driver that dies before that ends
  the wait, and the process ends with it; one that dies after it left a record that the next create adopts.
- A pid alone proves nothing. It counts together with the time that its process started; another start time means
  that the number was given to a stranger, whom nobody touches. A zombie is dead.
- NotFound is final. When the server is dead, what is left of its process group is ended first, so that nothing goes
  on to answer at the address of an instance that is reported as gone.
- One folder, one actor. Whoever changes an instance holds a lock on its folder; the kernel releases it with its holder.
- The declared port is honoured. Every instance gets a loopback address of its own (Linux answers on all of
  127.0.0.0/8), drawn at random, so that many share port 3128 and each replacement has a new address. Where that port
  can't be had (macOS has 127.0.0.1 alone, or the entry names another ``host``), a free port is taken and reported.

Everything that serves one entry must share one machine: its state folder and its processes.
"""
