//! The help text.

/// What `--help` prints.
pub const HELP: &str = "\
Measures service latency: how long an I/O completion that is already armed, or a
task submitted from another thread, waits for a worker that is never idle.

Usage: bench-cli [OPTIONS]

What is measured:
  --workload NAME      service, as said above, or echo: requests that a server
                       sends back [service]
  --backend NAME       uring, epoll or auto [auto]
                       auto takes io_uring, or epoll where io_uring is refused
  --tasks N            tasks that keep the worker busy by yielding,
                       1 to 1000000 [1]; of echo none unless given
  --pin WORKER,REMOTE  CPUs of the worker and of the measuring thread,
                       for example 0,1; twice the same is allowed [not pinned]

For how long:
  --trials N           1 to 100000 [40]
  --backlog-ms N       how long a trial keeps its worker busy,
                       1 to 60000 [20]
  --timeout-ms N       bound of each phase's waiting, 1 to 600000 [2000]
  --smoke              3 trials of 5 ms, or 8 connections for 100 ms, to see
                       that everything works; what is given still counts

Of echo:
  --connections N      1 to 10000 [64]
  --bytes N            of each request, 1 to 16777216 [64]
  --rate N             requests due in a second, 1 to 10000000
                       [each connection asks again when it is answered]
  --duration-ms N      1 to 3600000 [2000]

How it is reported:
  --json               one JSON object instead of text
  -h, --help           this text
  -V, --version        the version

Each trial makes a fresh scheduler with one worker, and a task that waits for an
event. When the worker has been busy for half of --backlog-ms, the measuring
thread triggers the event and submits another task. The same trial without a
scheduler follows each time: the floor, which decides nothing.

Exit status: 0 success; 1 a failed trial or an unavailable backend; 2 bad usage.
";
