"""Rows of a Parquet file in small batches, without the nulls that Arrow adds to nested values."""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from typing import Any, BinaryIO, cast

import pyarrow
import pyarrow.parquet
import pyarrow.types as kinds

_BATCH_ROWS = 32
"""Few, because the size that a row group states says nothing about its largest rows."""

_BATCH_BYTES = 4 << 20

_ROWS_UNTIL_RELEASE = 1 << 13
"""After so many rows Arrow gives back memory that it has freed; its allocator hoards it."""

_FAILURES = (pyarrow.ArrowException, OSError, ValueError)


def parquet_rows(
    file: BinaryIO, damaged: Callable[[str, int], ValueError]
) -> Iterator[dict[str, Any]]:
    """Yield the rows in order, holding one batch and the pages that it lies in.

    A page is the least that can be decompressed; most writers end one after about 1 MiB, but
    Arrow's not before 1024 rows.

    Args:
        file: open for reading, seekable.
        damaged: makes the error from what is wrong and a 0-based byte of the file.

    Raises:
        ValueError: the one that `damaged` makes, after the rows before the damage.
    """
    table = _open(file, damaged)
    rows = 0
    for number in range(table.num_row_groups):
        group = table.metadata.row_group(number)
        end = rows + group.num_rows
        try:
            batches = table.iter_batches(_batch_rows(group), [number], use_threads=False)
            for row in chain.from_iterable(map(_rows, batches)):  # holds no batch but the present
                yield row
                rows += 1
                if rows % _ROWS_UNTIL_RELEASE == 0:
                    pyarrow.default_memory_pool().release_unused()
            if rows != end:
                raise ValueError(f"its row group ends before row {end}")
        except _FAILURES as error:
            what = f"row {rows} cannot be read ({error}); its row group begins"
            raise damaged(what, _first_byte(group)) from error


def _open(file: BinaryIO, damaged: Callable[[str, int], ValueError]) -> Any:
    try:
        return pyarrow.parquet.ParquetFile(
            file, buffer_size=1 << 16, pre_buffer=False, page_checksum_verification=True
        )
    except _FAILURES as error:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4))
        state = "damaged" if file.read() == b"PAR1" else "missing"
        raise damaged(f"the footer is {state} ({error}); the file ends", size) from error


def _batch_rows(group: Any) -> int:
    average: int = group.total_byte_size // max(1, group.num_rows)
    return min(_BATCH_ROWS, max(1, _BATCH_BYTES // max(1, average)))


def _first_byte(group: Any) -> int:
    columns = [group.column(index) for index in range(group.num_columns)]
    first: int = min(
        column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
        for column in columns
    )
    return first


def _rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Convert few rows at a time if they are large, and one by one if one of them is damaged."""
    count = max(1, batch.num_rows * _BATCH_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, count):
        part = batch.slice(start, count)
        try:
            rows = _converted(part)
        except _FAILURES:
            rows = (row for at in range(part.num_rows) for row in _converted(part.slice(at, 1)))
        yield from rows


def _converted(batch: Any) -> Iterable[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{} for _ in range(batch.num_rows)]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        for row, value in zip(rows, _values(column), strict=True):
            row[name] = value
    return rows


def _values(array: Any) -> list[Any]:
    """Convert an array to Python values, a column at a time: much faster than value by value."""
    kind = array.type
    if kinds.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if kinds.is_fixed_size_list(kind) or kinds.is_list_view(kind):
        return _values(array.cast(pyarrow.list_(kind.value_field)))
    if kinds.is_struct(kind):
        return _with_nulls(_structs(array), array)
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return _with_nulls(_lists(array, [array.values]), array)
    if kinds.is_map(kind):
        return _with_nulls(_lists(array, [array.keys, array.items]), array)
    if kinds.is_temporal(kind):
        return [_time(scalar) for scalar in array]
    return cast(list[Any], array.to_pylist())


def _with_nulls(values: list[Any], array: Any) -> list[Any]:
    if not array.null_count:
        return values
    valid = array.is_valid().to_pylist()
    return [value if valid_one else None for value, valid_one in zip(values, valid, strict=True)]


def _structs(array: Any) -> list[dict[str, Any]]:
    """Undo Arrow's union of keys: a null below the columns is a key that the row never had."""
    structs: list[dict[str, Any]] = [{} for _ in range(len(array))]
    for index, field in enumerate(array.type):
        for struct, value in zip(structs, _values(array.field(index)), strict=True):
            if value is not None:
                struct[field.name] = value
    return structs


def _lists(array: Any, children: list[Any]) -> list[list[Any]]:
    """Convert the items of all lists together, then cut them; items of two children are pairs."""
    offsets = array.offsets.to_pylist()
    start, count = offsets[0], offsets[-1] - offsets[0]
    columns = [_values(child.slice(start, count)) for child in children]
    items = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    return [items[first - start : end - start] for first, end in pairwise(offsets)]


def _time(scalar: Any) -> Any:
    """Convert a time, or give the number that is stored if Python's times cannot hold it."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, KeyError):
        return scalar.value
