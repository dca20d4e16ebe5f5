"""Speaks to the examples as real clients do: Python's own sockets and asyncio, curl, nc and wrk.

    check.py DIRECTORY BACKEND...

DIRECTORY holds the examples' programs. Every wait has a bound. A failure names the check, the
backend and the seed; EVENKEEL_SEED repeats it.
"""

import asyncio
import contextlib
import os
import random
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

BOUND = 30.0
SEED = int(os.environ.get("EVENKEEL_SEED") or random.SystemRandom().randrange(1 << 32))


class Server:
    """An example that runs."""

    def __init__(self, program, backend, *arguments, descriptors=None):
        def limit():
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        command = [program, "--backend", backend, "127.0.0.1:0", *arguments]
        # A file: what it says of each reset connection must not fill a pipe.
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.said, preexec_fn=limit
        )
        line = self.process.stdout.readline().decode().strip()
        if not line:
            self.said.seek(0)
            raise AssertionError(f"{command} did not start: {self.said.read().decode()}")
        host, port = line.rsplit(":", 1)
        self.address = (host, int(port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ended = self.process.poll()
        self.process.kill()
        self.process.wait(BOUND)
        if ended is not None:
            self.said.seek(0)
            said = self.said.read().decode()
            raise AssertionError(f"the server ended by itself with {ended}: {said}")

    def memory(self):
        """Resident, in bytes."""
        with open(f"/proc/{self.process.pid}/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()


def connect(server):
    connection = socket.create_connection(server.address, timeout=BOUND)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive_all(connection):
    """Up to the end."""
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


async def exchange(server, numbers, size):
    """Sends bytes in random pieces, closes its half, and gets them all back."""
    reader, writer = await asyncio.open_connection(*server.address)
    sent = numbers.randbytes(size)

    async def send():
        place = 0
        while place < size:
            piece = numbers.randrange(1, 1 + min(size - place, 1 << numbers.randrange(1, 16)))
            writer.write(sent[place : place + piece])
            place += piece
            if numbers.randrange(4) == 0:
                await writer.drain()
                await asyncio.sleep(0)
        await writer.drain()
        writer.write_eof()

    async def receive():
        got = await reader.read(-1)
        assert got == sent, f"{len(got)} of {size} bytes came back, or others"

    await asyncio.gather(send(), receive())
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def bytes_come_back(server, numbers):
    """Random lengths in random pieces, and after the half-close the rest."""

    async def all_of_them():
        sizes = [0, 1, 7, 1 << 14, (1 << 14) + 1] + [numbers.randrange(1 << 20) for _ in range(10)]
        await asyncio.wait_for(
            asyncio.gather(
                *(exchange(server, random.Random(numbers.random()), size) for size in sizes)
            ),
            BOUND,
        )

    asyncio.run(all_of_them())


def a_thousand_connections(server, numbers):
    """All open at once before the first byte goes."""

    async def one(start):
        reader, writer = await asyncio.open_connection(*server.address)
        sent = numbers.randbytes(numbers.randrange(1, 3000))
        await start.wait()
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.close()

    async def all_of_them():
        start = asyncio.Barrier(1000)
        await asyncio.wait_for(asyncio.gather(*(one(start) for _ in range(1000))), BOUND)

    asyncio.run(all_of_them())


def a_slow_reader_is_waited_for(server, numbers):
    """Who does not read is not read from: the server holds next to nothing for it."""
    before = server.memory()
    sent = numbers.randbytes(1 << 20)
    with connect(server) as slow:
        slow.setblocking(False)
        total = 0
        quiet_since = time.monotonic()
        # Until nothing is taken any more.
        while time.monotonic() - quiet_since < 0.3:
            try:
                total += slow.send(sent[total % len(sent) :])
                quiet_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
            assert total < 1 << 30, "the server takes all that it is given"
        held = server.memory() - before
        assert held < 4 << 20, f"the server holds {held} bytes"
        # Somebody else is served meanwhile.
        asyncio.run(asyncio.wait_for(exchange(server, numbers, 10_000), BOUND))
        slow.settimeout(BOUND)
        got = 0
        while got < total:
            piece = slow.recv(min(total - got, 1 << 16))
            assert piece, f"only {got} of {total} bytes"
            place = got % len(sent)
            expected = (sent + sent)[place : place + len(piece)]
            assert piece == expected, f"other bytes from {got} on"
            got += len(piece)


def a_reset_ends_one_connection_only(server, numbers):
    """In the midst of a transfer, many times, beside one that goes on."""
    with connect(server) as witness:
        for _ in range(50):
            rude = connect(server)
            rude.sendall(numbers.randbytes(numbers.randrange(1, 100_000)))
            # Closing it sends a reset.
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            rude.close()
            message = numbers.randbytes(100)
            witness.sendall(message)
            got = b""
            while len(got) < len(message):
                got += witness.recv(100)
            assert got == message
    asyncio.run(asyncio.wait_for(exchange(server, numbers, 50_000), BOUND))


def a_netcat_that_closes_its_half_gets_all(server, numbers):
    """nc -N."""
    sent = numbers.randbytes(300_000)
    host, port = server.address
    nc = subprocess.run(
        ["nc", "-N", host, str(port)], input=sent, capture_output=True, timeout=BOUND, check=True
    )
    assert nc.stdout == sent, f"{len(nc.stdout)} of {len(sent)} bytes came back, or others"


def with_few_descriptors_nobody_is_lost(program, backend, numbers, *arguments):
    """200 clients of a server that may have some 50 open: the others are served when those have gone."""

    async def one(server):
        reader, writer = await asyncio.open_connection(*server.address)
        sent = numbers.randbytes(2000)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        # It keeps its place for a while.
        await asyncio.sleep(numbers.random() / 20)
        writer.close()

    async def all_of_them(server):
        await asyncio.wait_for(asyncio.gather(*(one(server) for _ in range(200))), BOUND)

    with Server(program, backend, *arguments, descriptors=64) as server:
        asyncio.run(all_of_them(server))
        asyncio.run(all_of_them(server))


def curl_is_answered(server, _):
    """GET and HEAD, one connection for several, and what is refused."""
    url = "http://{}:{}/".format(*server.address)

    def curl(*arguments):
        command = ["curl", "--silent", "--show-error", "--max-time", "20", *arguments]
        return subprocess.run(command, capture_output=True, timeout=BOUND, check=True).stdout

    assert curl(url) == b"an even keel\n"
    assert curl("--http1.0", url) == b"an even keel\n"
    head = curl("--head", url).decode().lower()
    assert head.startswith("http/1.1 200 ok") and "content-length: 13" in head, head
    many = curl("--write-out", "%{num_connects} ", url, url, url, url)
    assert many == b"an even keel\n1 " + b"an even keel\n0 " * 3, many
    status = curl("--output", os.devnull, "--write-out", "%{http_code}", "-X", "DELETE", url)
    assert status == b"405", status


def requests_in_a_row_are_answered_in_order(server, numbers):
    """Pipelined, cut anywhere."""
    requests = b"".join(
        b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n" if head else b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        for head in (numbers.randrange(2) for _ in range(50))
    )
    expected = requests.count(b"GET ")
    with connect(server) as connection:
        place = 0
        while place < len(requests):
            piece = numbers.randrange(1, 60)
            connection.sendall(requests[place : place + piece])
            place += piece
        connection.shutdown(socket.SHUT_WR)
        answers = receive_all(connection)
    assert answers.count(b"HTTP/1.1 200 OK") == 50
    assert answers.count(b"an even keel\n") == expected


def wrk_meets_no_error(server, _):
    """A second of load."""
    url = "http://{}:{}/".format(*server.address)
    command = ["wrk", "-t1", "-c64", "-d1s", url]
    said = subprocess.run(command, capture_output=True, timeout=BOUND, check=True).stdout.decode()
    assert "Socket errors" not in said and "Non-2xx" not in said, said
    requests = int(said.split(" requests in ")[0].split()[-1])
    assert requests > 0, said
    print(f"    {requests} requests", flush=True)


def a_target_that_refuses_ends_the_connection(program, backend):
    """A proxy to nobody."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        host, port = nobody.getsockname()
    with Server(program, backend, f"{host}:{port}") as proxy:
        for _ in range(20):
            with connect(proxy) as client:
                try:
                    assert receive_all(client) == b""
                except ConnectionResetError:
                    pass


def check(name, backend, what, *arguments):
    print(f"  {backend}: {name}: {what.__name__}", flush=True)
    try:
        what(*arguments)
    except BaseException:
        print(
            f"FAILED: {name} over {backend}: {what.__name__}; EVENKEEL_SEED={SEED} repeats it",
            flush=True,
        )
        raise


ECHO = [
    bytes_come_back,
    a_thousand_connections,
    a_slow_reader_is_waited_for,
    a_reset_ends_one_connection_only,
]


def main():
    directory, *backends = sys.argv[1:]
    echo, proxy, http = (os.path.join(directory, name) for name in ("echo", "proxy", "http"))
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    has = {tool: shutil.which(tool) for tool in ("nc", "curl", "wrk")}
    for tool in (tool for tool, where in has.items() if not where):
        print(f"SKIPPED: what {tool} would check, since it is not here")

    for backend in backends:
        numbers = random.Random(SEED)
        with Server(echo, backend) as server:
            for what in ECHO:
                check("echo", backend, what, server, numbers)
            if has["nc"]:
                check("echo", backend, a_netcat_that_closes_its_half_gets_all, server, numbers)
            with Server(proxy, backend, "{}:{}".format(*server.address)) as front:
                for what in ECHO:
                    check("proxy", backend, what, front, numbers)
                if has["nc"]:
                    check("proxy", backend, a_netcat_that_closes_its_half_gets_all, front, numbers)
        check("echo", backend, with_few_descriptors_nobody_is_lost, echo, backend, numbers)
        check("proxy", backend, a_target_that_refuses_ends_the_connection, proxy, backend)
        with Server(http, backend) as server:
            check("http", backend, requests_in_a_row_are_answered_in_order, server, numbers)
            if has["curl"]:
                check("http", backend, curl_is_answered, server, numbers)
                with Server(proxy, backend, "{}:{}".format(*server.address)) as front:
                    check("http behind proxy", backend, curl_is_answered, front, numbers)
            if has["wrk"]:
                check("http", backend, wrk_meets_no_error, server, numbers)
    print(f"all passed (EVENKEEL_SEED={SEED})")


main()
