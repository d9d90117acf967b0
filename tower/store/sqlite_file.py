"""The SQLite file of the records.

All functions block, so they run before the reactor starts or in a thread.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from attrs import evolve, field, frozen

from tower.errors import ConfigurationError, TowerError
from tower.store.kinds import KINDS
from tower.store.records import Event, Operation, Record, StoreFailed, encode
from tower.store.store import Plan

#: Statements that lead from each schema to the next one, from schema 1 on.  A new kind of record needs a
#: step, too, even an empty one: earlier versions reject files with unknown kinds.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (),  # schema 2 has the kind events
    (),  # schema 3 has the kind revokedkeys
)

#: Version of the schema, in the file's header.
SCHEMA = 1 + len(MIGRATIONS)

#: Marks Tower's files in the header: "Towr".
APPLICATION_ID = 0x546F7772

#: Timeout for another process's lock on the file, s.
_BUSY = 5.0

#: SQLite's default page size, B.
_PAGE = 4096

_TABLES = (
    """CREATE TABLE records (
        kind TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, value TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID""",
    "CREATE TABLE sequence (version INTEGER NOT NULL)",
    "INSERT INTO sequence VALUES (0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA}",
)


class _Damaged(Exception):
    """The file is a SQLite file with invalid content."""


@frozen
class Outcome:
    """The result of a transaction.

    :ivar found: version and records of the file, if they were not the expected ones.
    :ivar is_in_doubt: whether the commit may have succeeded despite the error; the next write finds out.
    """

    answers: list[Record | None] = field(factory=list)
    events: list[Event] = field(factory=list)
    found: tuple[int, list[Record]] | None = None
    error: TowerError | None = None
    is_in_doubt: bool = False


class SQLiteFile:
    """A SQLite file; must be called by one thread at a time.

    :param size_limit: largest file, B.
    """

    def __init__(self, path: str, size_limit: int) -> None:
        self.path = path
        self._pages = max(size_limit // _PAGE, 1)
        self._version = 0
        self._connection: sqlite3.Connection | None = None

    def load(self) -> tuple[int, list[Record]]:
        """Create a missing file, check it, and return its last version and records.

        :raise ConfigurationError: the file cannot be used; the text names the cure.
        """
        try:
            # Not by SQLite, which would leave the mode to the umask.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            with closing(self._connect()) as connection:
                self._prepare(connection)
                self._version, records = _read(connection)
        except OSError as e:
            raise ConfigurationError(f"state file {self.path}: {e.strerror}") from e
        except (sqlite3.Error, _Damaged) as e:
            raise ConfigurationError(f"state file {self.path}: {explained(e)}") from e
        return self._version, records

    def write(self, operations: Sequence[Operation]) -> Outcome:
        """Run a transaction; errors are in the outcome."""
        (outcome,) = self.write_all([operations])
        return outcome

    def write_all(self, transactions: Sequence[Sequence[Operation]]) -> list[Outcome]:
        """Run transactions, and make all of them durable at once; errors are in the outcomes.

        A transaction that cannot be stored does not affect the others.
        """
        outcomes: list[Outcome] = []
        found, is_in_doubt, is_committing = None, False, False
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = self._connect()
                version, records = _read(connection)
                if version != self._version:
                    self._version, found = version, (version, records)
            version = self._version
            with _transaction(connection):
                is_in_doubt = True
                for operations in transactions:
                    outcome, version = _run(connection, operations, version)
                    outcomes.append(outcome)
                is_committing = True
        except (sqlite3.Error, _Damaged) as e:
            self.close()
            error = StoreFailed(f"cannot write {self.path}: {explained(e)}")
            if len(transactions) > 1 and is_in_doubt and not is_committing:
                outcomes = [self.write(operations) for operations in transactions]
            else:
                outcomes = [Outcome(error=error, is_in_doubt=is_in_doubt)] * len(transactions)
        else:
            self._version = version
        if found is not None and outcomes[0].found is None:
            outcomes[0] = evolve(outcomes[0], found=found)
        return outcomes

    def close(self) -> None:
        """Close the file; the next write reopens it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None, check_same_thread=False)
        try:
            check_owner(connection, f"state file {self.path}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA max_page_count = {self._pages}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if _number(connection, "PRAGMA application_id") == 0:
            with _transaction(connection):
                for statement in _TABLES:
                    connection.execute(statement)
        _migrate(connection)
        (report,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if report != "ok":
            raise _Damaged(report)


def check_owner(connection: sqlite3.Connection, source: str) -> None:
    """Reject a file of another program or of a newer Tower before changing it.

    :param source: name for errors.
    :raise ConfigurationError: with the cure.
    """
    application = _number(connection, "PRAGMA application_id")
    schema = _number(connection, "PRAGMA user_version")
    tables = _number(connection, "SELECT count(*) FROM sqlite_master")
    if application != APPLICATION_ID and (application, schema, tables) != (0, 0, 0):
        raise ConfigurationError(f"{source}: belongs to another program: name another state directory")
    if schema > SCHEMA:
        raise ConfigurationError(
            f"{source}: was written by a newer Tower (layout {schema}, this one knows {SCHEMA}): run that "
            "version again, or restore a backup from before the upgrade"
        )


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring a file of an earlier schema to this one, in one transaction."""
    schema = _number(connection, "PRAGMA user_version")
    if schema == SCHEMA:
        return
    with _transaction(connection):
        for step in MIGRATIONS[schema - 1 :]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")


def _run(
    connection: sqlite3.Connection, operations: Sequence[Operation], version: int
) -> tuple[Outcome, int]:
    """Run the operations of a transaction after *version*; return its outcome and the last version."""
    plan = Plan(
        version, lambda kind, name: _lookup(connection, kind, name), lambda kind: _select(connection, kind)
    )
    try:
        answers = plan.run(operations)
    except TowerError as e:
        return Outcome(error=e), version
    _store(connection, plan)
    return Outcome(answers, plan.events), plan.version


def _number(connection: sqlite3.Connection, query: str) -> int:
    row = connection.execute(query).fetchone()
    if row is None or not isinstance(row[0], int):
        raise _Damaged("a version number is missing")
    return row[0]


def _read(connection: sqlite3.Connection) -> tuple[int, list[Record]]:
    version = _number(connection, "SELECT version FROM sequence")
    rows = connection.execute("SELECT kind, name, version, value FROM records")
    records = [_record(*row) for row in rows]
    if any(record.version > version for record in records):
        raise _Damaged("a record is newer than the last change")
    return version, records


def _record(kind: str, name: str, version: int, text: str) -> Record:
    try:
        value = json.loads(text)
    except ValueError as e:
        raise _Damaged(f"{kind} {name!r} is not JSON") from e
    if kind not in KINDS or not isinstance(value, dict):
        raise _Damaged(f"{kind} {name!r} is of an unknown kind or not an object")
    return Record(kind, name, version, value)


def _lookup(connection: sqlite3.Connection, kind: str, name: str) -> Record | None:
    query = "SELECT kind, name, version, value FROM records WHERE kind = ? AND name = ?"
    row = connection.execute(query, (kind, name)).fetchone()
    return None if row is None else _record(*row)


def _select(connection: sqlite3.Connection, kind: str) -> list[Record]:
    query = "SELECT kind, name, version, value FROM records WHERE kind = ?"
    return [_record(*row) for row in connection.execute(query, (kind,))]


def _store(connection: sqlite3.Connection, plan: Plan) -> None:
    for event in plan.events:
        record = event.record
        if event.type == "DELETED":
            connection.execute("DELETE FROM records WHERE kind = ? AND name = ?", (record.kind, record.name))
        else:
            connection.execute(
                "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)",
                (record.kind, record.name, record.version, encode(record.value)),
            )
    if plan.events:
        connection.execute("UPDATE sequence SET version = ?", (plan.version,))


def checked_copy(data: bytes, source: str) -> bytes:
    """Return a copy of the file, as made by SQLite's serialization, without its WAL mode; check its content.

    :param source: name for errors.
    :raise ConfigurationError: it is damaged, another program's, or a newer Tower's.
    """
    plain = data[:18] + b"\1\1" + data[20:]  # a file in WAL mode cannot be opened in memory
    try:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.deserialize(plain)
            check_owner(connection, source)
            (report,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if report != "ok":
                raise _Damaged(report)
            _read(connection)
    except (sqlite3.Error, _Damaged) as e:
        raise ConfigurationError(f"{source}: {explained(e)}") from e
    return plain


def explained(error: Exception) -> str:
    """Return the cause and the cure."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return "no space left: free space on the disk"
    if code == sqlite3.SQLITE_BUSY:
        return "locked by another process: stop that process"
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) or isinstance(error, _Damaged):
        reason = " ".join(str(error).split())
        return f"damaged ({reason}): restore it from a backup, or move it away to start without clusters"
    return f"{error}: check the disk's free space and the file's permissions"
