# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Plain lines of a history, read without an object for each: nearly all of a large one.

    {"index": I, "process": P, "type": "…", "f": "send"|"poll"|"txn", "operations": […], "time": T, more}

in this order, with or without spaces, with numbers for processes and values. Any other line (other operations, escapes
in texts, rebalances, damage) is left to whoever calls, who reads it with the json module. No scan passes a newline, and
every piece of lines that is read ends with one.
"""

from typing import Any, Protocol

from kbroker.protocol.records import raw

SEND, POLL, TXN = range(3)
OK_CODE, FAIL_CODE, INFO_CODE, INVOKE_CODE = range(4)
OPERATION_WIDTH, RECORD_WIDTH = 9, 5
"""Numbers of a row; as in columns.Operations and columns.Records."""
BYTES_PER_OPERATION, BYTES_PER_RECORD = 40, 4
"""No line, and no record in it, is shorter."""
_MOST_DIGITS = 18
_NEWLINE, _SPACE, _QUOTE, _BACKSLASH, _ZERO, _NINE = b'\n "\\09'
_COMMA, _COLON, _OPEN, _CLOSE, _OPEN_MAP, _CLOSE_MAP = b",:[]{}"

Begun = tuple[int, int, bool, Any]
"""Index, time, whether it is of the last phase, and the line (or what it says) of an operation that has begun."""


class Numbers(Protocol):
    """Numbers names in the order in which they come."""

    def number(self, name: str) -> int:
        """The number of a name, a new one for a new name."""


class LineReader:
    """Fills rows of numbers."""

    def __init__(self, most_bytes: int, processes: dict[object, int], keys: Numbers, record_keys: Numbers) -> None:
        """Make room for what pieces of up to so many bytes can hold; names are numbered by what is given."""
        self.operation_rows = memoryview(bytearray(8 * OPERATION_WIDTH * (most_bytes // BYTES_PER_OPERATION + 1)))
        self.send_rows = memoryview(bytearray(8 * RECORD_WIDTH * (most_bytes // BYTES_PER_RECORD + 1)))
        self.read_rows = memoryview(bytearray(8 * RECORD_WIDTH * (most_bytes // BYTES_PER_RECORD + 1)))
        self.most_bytes = most_bytes
        self.processes = processes
        self.keys, self.record_keys = keys, record_keys
        self.key_numbers: dict[bytes, int] = {}
        self.record_key_numbers: dict[bytes, int] = {}
        self.waiting: dict[object, Begun] = {}
        self.operations = self.sends = self.reads = self.first_row = 0
        self.number = self.text_start = self.text_end = 0
        self.commit_time = -1
        self.final = False

    def begin(self, first_row: int) -> None:
        """Forget the rows; operations are numbered from here on."""
        self.operations = self.sends = self.reads = 0
        self.first_row = first_row

    def read(self, piece: bytes, position: int) -> int:
        """Read lines from a position on; returns where the first one begins that is not plain, or the end."""
        end = len(piece)
        if end > self.most_bytes or (end and piece[end - 1] != _NEWLINE):
            raise ValueError("a piece of a history is too long, or does not end with a line")
        data = raw.bytes_address(piece)
        while position < end:
            sends, reads = self.sends, self.reads
            after = self._line(piece, data, position)
            if after < 0:
                self.sends, self.reads = sends, reads
                break
            position = after
        return position

    def _line(self, piece: bytes, data: bytes, start: int) -> int:
        """Read one line; returns where the next one begins, -1 when this one is not plain."""
        at = self._name(data, self._sign(data, start, _OPEN_MAP), b"index")
        at = self._number(data, at)
        index = self.number
        at = self._number(data, self._name(data, self._sign(data, at, _COMMA), b"process"))
        process = self.number
        at = self._text(data, self._name(data, self._sign(data, at, _COMMA), b"type"))
        if at < 0:
            return -1
        type = self._type(data)
        at = self._text(data, self._name(data, self._sign(data, at, _COMMA), b"f"))
        if at < 0:
            return -1
        kind = self._kind(data)
        at = self._name(data, self._sign(data, at, _COMMA), b"operations")
        if at < 0 or type < 0 or kind < 0:
            return -1
        at = self._skipped(data, at) if type == INVOKE_CODE else self._operations(data, at)
        at = self._number(data, self._name(data, self._sign(data, at, _COMMA), b"time"))
        time = self.number
        at = self._more(data, at)
        if at < 0:
            return -1
        if type == INVOKE_CODE:
            self.waiting[process] = (index, time, self.final, piece[start:at])
            return at
        return at if self._complete(process, kind, type, index, time) else -1

    def _complete(self, process: int, kind: int, type: int, index: int, time: int) -> bool:
        """Add an operation's row; False where nobody has begun it."""
        begun = self.waiting.pop(process, None)
        if begun is None:
            return False
        number = self.processes.get(process)
        if number is None:
            number = self.processes[process] = len(self.processes)
        rows = raw.int64_address(self.operation_rows)
        row = self.operations * OPERATION_WIDTH
        rows[row] = number
        rows[row + 1] = kind
        rows[row + 2] = type
        rows[row + 3] = begun[0]
        rows[row + 4] = index
        rows[row + 5] = begun[1]
        rows[row + 6] = time
        rows[row + 7] = self.commit_time
        rows[row + 8] = 1 if self.final or begun[2] else 0
        self.operations += 1
        return True

    def _sign(self, data: bytes, at: int, sign: int) -> int:
        """Pass one character, and spaces before it."""
        if at < 0:
            return -1
        while data[at] == _SPACE:
            at += 1
        return at + 1 if data[at] == sign else -1

    def _name(self, data: bytes, at: int, name: bytes) -> int:
        """Pass a field's name and the colon."""
        at = self._sign(data, at, _QUOTE)
        if at < 0:
            return -1
        wanted = raw.bytes_address(name)
        for number in range(len(name)):
            if data[at] != wanted[number]:
                return -1
            at += 1
        return self._sign(data, self._sign(data, at, _QUOTE), _COLON)

    def _number(self, data: bytes, at: int) -> int:
        """Read a number that is not negative."""
        if at < 0:
            return -1
        while data[at] == _SPACE:
            at += 1
        found = 0
        begin = at
        while data[at] >= _ZERO and data[at] <= _NINE:
            found = found * 10 + (data[at] - _ZERO)
            at += 1
            if at - begin > _MOST_DIGITS:
                return -1
        self.number = found
        return at if at > begin else -1

    def _text(self, data: bytes, at: int) -> int:
        """Find a text without escapes: from `text_start` to `text_end`."""
        at = self._sign(data, at, _QUOTE)
        if at < 0:
            return -1
        self.text_start = at
        while data[at] != _QUOTE:
            if data[at] == _NEWLINE or data[at] == _BACKSLASH:
                return -1
            at += 1
        self.text_end = at
        return at + 1

    def _type(self, data: bytes) -> int:
        size = self.text_end - self.text_start
        first = data[self.text_start]
        if size == 2 and first == b"o"[0]:
            return OK_CODE
        if size == 4 and first == b"f"[0]:
            return FAIL_CODE
        if size == 4 and first == b"i"[0]:
            return INFO_CODE
        return INVOKE_CODE if size == 6 and first == b"i"[0] else -1

    def _kind(self, data: bytes) -> int:
        size = self.text_end - self.text_start
        first = data[self.text_start]
        if size == 4 and first == b"s"[0] and data[self.text_start + 1] == b"e"[0] and data[self.text_start + 3] == 100:
            return SEND
        if size == 4 and first == b"p"[0]:
            return POLL
        return TXN if size == 3 and first == b"t"[0] else -1

    def _skipped(self, data: bytes, at: int) -> int:
        """Pass a list."""
        at = self._sign(data, at, _OPEN)
        if at < 0:
            return -1
        depth = 1
        while depth:
            if data[at] == _NEWLINE or data[at] == _BACKSLASH:
                return -1
            if data[at] == _QUOTE:
                at = self._text(data, at)
                if at < 0:
                    return -1
                continue
            if data[at] == _OPEN:
                depth += 1
            elif data[at] == _CLOSE:
                depth -= 1
            at += 1
        return at

    def _operations(self, data: bytes, at: int) -> int:
        """Read sends and polls."""
        at = self._sign(data, at, _OPEN)
        while at >= 0:
            after = self._sign(data, at, _CLOSE)
            if after >= 0:
                return after
            at = self._text(data, self._sign(data, at, _OPEN))
            if at < 0:
                return -1
            kind = self._kind(data)
            if kind == SEND:
                at = self._send(data, at)
            elif kind == POLL:
                at = self._poll(data, at)
            else:
                return -1
            at = self._next(data, at, _CLOSE)
        return -1

    def _send(self, data: bytes, at: int) -> int:
        """Read a key, and a value or its place, up to behind the closing bracket."""
        at = self._text(data, self._sign(data, at, _COMMA))
        if at < 0:
            return -1
        key = self._numbered(self.key_numbers, self.keys, data)
        at = self._sign(data, at, _COMMA)
        row = self.sends * RECORD_WIDTH
        if self._sign(data, at, _OPEN) >= 0:
            at = self._place(data, at, raw.int64_address(self.send_rows), row, key)
        else:
            at = self._number(data, at)
            self._fill(raw.int64_address(self.send_rows), row, key, self.number, -1, -1)
        self.sends += 1
        return self._sign(data, at, _CLOSE)

    def _poll(self, data: bytes, at: int) -> int:
        """Read places by key, up to behind the closing bracket."""
        after = self._sign(data, at, _CLOSE)
        if after >= 0:
            return after
        at = self._sign(data, self._sign(data, at, _COMMA), _OPEN_MAP)
        rows = raw.int64_address(self.read_rows)
        while at >= 0:
            after = self._sign(data, at, _CLOSE_MAP)
            if after >= 0:
                return self._sign(data, after, _CLOSE)
            at = self._text(data, at)
            if at < 0:
                return -1
            key = self._numbered(self.key_numbers, self.keys, data)
            at = self._sign(data, self._sign(data, at, _COLON), _OPEN)
            while at >= 0:
                after = self._sign(data, at, _CLOSE)
                if after >= 0:
                    at = after
                    break
                at = self._place(data, at, rows, self.reads * RECORD_WIDTH, key)
                self.reads += 1
                at = self._next(data, at, _CLOSE)
            at = self._next(data, at, _CLOSE_MAP)
        return -1

    def _place(self, data: bytes, at: int, rows: memoryview, row: int, key: int) -> int:
        """Read [offset, value] or [offset, value, record_key] into a row."""
        at = self._number(data, self._sign(data, at, _OPEN))
        offset = self.number
        at = self._number(data, self._sign(data, at, _COMMA))
        value = self.number
        if at < 0:
            return -1
        record_key = -1
        after = self._sign(data, at, _COMMA)
        if after >= 0:
            at = self._text(data, after)
            if at < 0:
                return -1
            record_key = self._numbered(self.record_key_numbers, self.record_keys, data)
        self._fill(rows, row, key, value, offset, record_key)
        return self._sign(data, at, _CLOSE)

    def _fill(self, rows: memoryview, row: int, key: int, value: int, offset: int, record_key: int) -> None:
        rows[row] = self.first_row + self.operations
        rows[row + 1] = key
        rows[row + 2] = value
        rows[row + 3] = offset
        rows[row + 4] = record_key

    def _numbered(self, known: dict[bytes, int], names: Numbers, data: bytes) -> int:
        """The number of the text that was found."""
        text = data[self.text_start : self.text_end]
        number = known.get(text)
        if number is None:
            number = known[text] = names.number(text.decode())
        return number

    def _next(self, data: bytes, at: int, close: int) -> int:
        """Pass the comma behind an element; before the closing sign there is none."""
        after = self._sign(data, at, _COMMA)
        if after >= 0:
            return after
        return at if self._sign(data, at, close) >= 0 else -1

    def _more(self, data: bytes, at: int) -> int:
        """Pass the optional fields that are known here, up to behind the newline."""
        self.final = False
        self.commit_time = -1
        while at >= 0:
            after = self._sign(data, at, _CLOSE_MAP)
            if after >= 0:
                return self._sign(data, after, _NEWLINE)
            at = self._sign(data, at, _COMMA)
            after = self._name(data, at, b"final")
            if after >= 0:
                at = self._true(data, after)
                continue
            after = self._name(data, at, b"commit_time")
            if after >= 0:
                at = self._number(data, after)
                self.commit_time = self.number
                continue
            after = self._name(data, at, b"error")
            at = self._text(data, after) if after >= 0 else -1
        return -1

    def _true(self, data: bytes, at: int) -> int:
        while data[at] == _SPACE:
            at += 1
        for sign in b"true":
            if data[at] != sign:
                return -1
            at += 1
        self.final = True
        return at
