#!/usr/bin/python3
"""Tables of Apache Arrow's streaming format, without pip packages: what data/evals.py needs of it.

    data/arrow.py FILE.arrow        # its rows as JSON lines

A stream is messages: FF FF FF FF, the int32 size of a flatbuffer, the flatbuffer, a body of buffers. The
first message is the schema, each further one a batch of rows. Columns are integers, strings, lists and
structs of these; others (dictionaries, compressed bodies) are errors. Everything is little endian.
"""
import json
import struct
import sys

SCHEMA, BATCH = 1, 3                                        # kinds of message
INT, UTF8, LIST, STRUCT = 2, 5, 12, 13                      # kinds of column


class Table:
    """A table of a flatbuffer: a vtable has the place of each field, 0 for a field with its default."""

    def __init__(self, data, at):
        self.data, self.at = data, at
        self.vtable = at - struct.unpack_from("<i", data, at)[0]
        self.fields = struct.unpack_from("<H", data, self.vtable)[0] // 2 - 2

    def place(self, field):
        offset = 0
        if field < self.fields:
            offset = struct.unpack_from("<H", self.data, self.vtable + 4 + 2 * field)[0]
        return self.at + offset if offset else None

    def number(self, field, kind, default=0):
        at = self.place(field)
        return default if at is None else struct.unpack_from("<" + kind, self.data, at)[0]

    def there(self, field):
        """Where the field's offset leads; None where there is no such field."""
        at = self.place(field)
        return None if at is None else at + struct.unpack_from("<I", self.data, at)[0]

    def table(self, field):
        at = self.there(field)
        return None if at is None else Table(self.data, at)

    def text(self, field):
        at = self.there(field)
        size = struct.unpack_from("<I", self.data, at)[0]
        return bytes(self.data[at + 4 : at + 4 + size]).decode()

    def vector(self, field):
        """(elements, where the first is)"""
        at = self.there(field)
        return (0, 0) if at is None else (struct.unpack_from("<I", self.data, at)[0], at + 4)

    def tables(self, field):
        count, at = self.vector(field)
        places = [at + 4 * i for i in range(count)]
        return [Table(self.data, p + struct.unpack_from("<I", self.data, p)[0]) for p in places]

    def pairs(self, field):
        """A vector of structs of two int64."""
        count, at = self.vector(field)
        return list(struct.iter_unpack("<qq", self.data[at : at + 16 * count]))


class Column:
    """A field of the schema: name, kind, letter of struct's for an integer, columns below."""

    def __init__(self, field):
        self.name, self.kind = field.text(0), field.number(2, "B")
        self.below = [Column(f) for f in field.tables(5)]
        if self.kind not in (INT, UTF8, LIST, STRUCT) or field.place(4) is not None:
            raise ValueError(f"column {self.name} is of kind {self.kind}, which is not read here")
        if self.kind == INT:
            kind = field.table(3)
            letter = {8: "b", 16: "h", 32: "i", 64: "q"}[kind.number(0, "i")]
            self.letter = letter if kind.number(1, "B") else letter.upper()


def values(column, nodes, buffers, body):
    """The values of a column. Takes the column's nodes and buffers: both come in depth-first order."""
    rows, missing = next(nodes)
    present = next(buffers)

    def numbers(letter, count):
        offset, size = next(buffers)
        return struct.unpack_from(f"<{count}{letter}", body, offset) if size else ()

    if column.kind == INT:
        found = list(numbers(column.letter, rows))
    elif column.kind == STRUCT:
        parts = {c.name: values(c, nodes, buffers, body) for c in column.below}
        found = [{name: part[i] for name, part in parts.items()} for i in range(rows)]
    else:
        ends = numbers("i", rows + 1)
        if column.kind == UTF8:
            offset, size = next(buffers)
            text = bytes(body[offset : offset + size])
            found = [text[a:b].decode() for a, b in zip(ends, ends[1:])]
        else:
            elements = values(column.below[0], nodes, buffers, body)
            found = [elements[a:b] for a, b in zip(ends, ends[1:])]
    if missing:
        bits = body[present[0] : present[0] + present[1]]
        found = [x if bits[i // 8] >> i % 8 & 1 else None for i, x in enumerate(found)]
    return found


def rows_of(data):
    """The rows of a stream, each a dictionary."""
    data, at, columns = memoryview(data), 0, []
    while at + 8 <= len(data):
        marker, size = struct.unpack_from("<Ii", data, at)
        if marker != 0xFFFFFFFF:
            raise ValueError(f"no message of Arrow's streaming format at byte {at}")
        if size == 0:
            return
        meta = data[at + 8 : at + 8 + size]
        message = Table(meta, struct.unpack_from("<I", meta)[0])
        at += 8 + size
        length = message.number(3, "q")
        body = data[at : at + length]
        at += length
        if len(body) < length:
            raise ValueError(f"a message ends at byte {len(data)} of {at}")
        kind, header = message.number(1, "B"), message.table(2)
        if kind == SCHEMA:
            columns = [Column(f) for f in header.tables(1)]
        elif kind == BATCH:
            if header.place(3) is not None:
                raise ValueError("a compressed batch, which is not read here")
            nodes, buffers = iter(header.pairs(1)), iter(header.pairs(2))
            parts = [values(c, nodes, buffers, body) for c in columns]
            for row in zip(*parts):
                yield dict(zip((c.name for c in columns), row))
        else:
            raise ValueError(f"a message of kind {kind}, which is not read here")


def main():
    if "--help" in sys.argv[1:]:
        sys.exit(print(__doc__.strip()))
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        with open(sys.argv[1], "rb") as f:
            for row in rows_of(f.read()):
                print(json.dumps(row, ensure_ascii=False))
    except (OSError, ValueError, struct.error) as e:
        sys.exit(f"error: {sys.argv[1]}: {getattr(e, 'strerror', None) or e}")


if __name__ == "__main__":
    main()
